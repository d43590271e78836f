"""Programs that language models write, beside chance and construction, by the estimate alone."""
