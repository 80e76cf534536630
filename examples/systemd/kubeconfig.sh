#!/usr/bin/env bash
# Prints a kubeconfig with the rights of the chart's ServiceAccount, for a kproxide that runs outside of the cluster. Run
# it where kubectl works, as an administrator:
#   examples/systemd/kubeconfig.sh > kubeconfig
# It makes a Secret with a token that does not expire. To take the token back, delete the Secret kproxide-outside.
set -euo pipefail
namespace="${1:-kproxide}"
account="${2:-kproxide}"

kubectl apply --filename - >&2 <<EOF
apiVersion: v1
kind: Secret
metadata:
  name: $account-outside
  namespace: $namespace
  annotations:
    kubernetes.io/service-account.name: $account
type: kubernetes.io/service-account-token
EOF
kubectl wait --namespace "$namespace" "secret/$account-outside" --for=jsonpath='{.data.token}' --timeout=60s >&2
token=$(kubectl get secret "$account-outside" --namespace "$namespace" --output=jsonpath='{.data.token}' | base64 --decode)
authority=$(kubectl get secret "$account-outside" --namespace "$namespace" --output=jsonpath='{.data.ca\.crt}')
server=$(kubectl config view --minify --output=jsonpath='{.clusters[0].cluster.server}')
cat <<EOF
apiVersion: v1
kind: Config
current-context: kproxide
contexts:
  - name: kproxide
    context: {cluster: kubernetes, user: kproxide, namespace: $namespace}
clusters:
  - name: kubernetes
    cluster:
      server: $server
      certificate-authority-data: $authority
users:
  - name: kproxide
    user:
      token: $token
EOF
