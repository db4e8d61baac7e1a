"""A trained model as a folder for others: transformers and vLLM load it as it is."""
