"""Mathematical functions of torch programs: of complex numbers, of whole rows, and of linear algebra."""
