"""What a tenant's vault is put together from: its records, the services over them, and what follows them."""
