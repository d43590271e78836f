"""Results as files: the HTML report and the JSON figures."""
