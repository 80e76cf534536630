use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::pki::ClientCertificate;

/// How to reach an API server and as whom: what a kubeconfig says.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) server: String,
    pub(super) ca_pem: String,
    pub(super) identity: Identity,
}

#[derive(Clone, Debug)]
pub(super) enum Identity {
    Certificate(ClientCertificate),
    Token(String),
}

impl Access {
    pub(super) fn certificate(
        server: String,
        ca_pem: String,
        certificate: ClientCertificate,
    ) -> Self {
        Access {
            server,
            ca_pem,
            identity: Identity::Certificate(certificate),
        }
    }

    pub(super) fn token(server: String, ca_pem: String, token: String) -> Self {
        Access {
            server,
            ca_pem,
            identity: Identity::Token(token),
        }
    }

    /// The same as a kubeconfig. JSON, which every reader of YAML takes.
    pub(super) fn kubeconfig(&self) -> String {
        let user = match &self.identity {
            Identity::Certificate(pair) => json!({
                "client-certificate-data": STANDARD.encode(&pair.certificate),
                "client-key-data": STANDARD.encode(&pair.key),
            }),
            Identity::Token(token) => json!({ "token": token }),
        };
        kubeconfig(
            &json!({
                "server": self.server,
                "certificate-authority-data": STANDARD.encode(&self.ca_pem),
            }),
            &user,
        )
    }
}

/// A kubeconfig with one cluster, one user and one context.
pub(crate) fn kubeconfig(cluster: &Value, user: &Value) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "test", "cluster": cluster }],
        "users": [{ "name": "test", "user": user }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        "current-context": "test",
    })
    .to_string()
}
