"""A trained model as something to deploy: images, a compose file, Kubernetes manifests, alerts and a dashboard."""
