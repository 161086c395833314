"""What the services of AWS share: their client, its settings and its errors."""
