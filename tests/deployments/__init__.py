"""What deployments of tests do not spend their time on."""
