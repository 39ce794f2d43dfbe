"""Drop-ins for training systems people already have: import the module of the host, nothing here loads one."""
