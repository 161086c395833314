"""What the services of an Azure storage account share: addresses, signatures, tokens, requests and errors."""
