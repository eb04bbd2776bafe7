"""What tries to break the library on purpose: `make attack`."""
