"""Programs beside the service: the demo, the local receiver, the verifier, embedded servers."""
