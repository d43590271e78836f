"""Every operator, compiled for each board and run under an emulator: right or wrong."""
