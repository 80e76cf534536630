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

    /// Reads a kubeconfig as `kubectl config view --raw --flatten --minify -o json` prints it: one cluster, one user,
    /// file contents inlined.
    ///
    /// # Errors
    ///
    /// A sentence about what is missing. Users who log in by a command or an identity provider are not supported.
    pub(super) fn from_kubeconfig(json: &str) -> Result<Self, String> {
        let view: Value =
            serde_json::from_str(json).map_err(|error| format!("it is not JSON: {error}"))?;
        let cluster = &view["clusters"][0]["cluster"];
        let user = &view["users"][0]["user"];
        let server = cluster["server"]
            .as_str()
            .ok_or("its current context names no cluster")?;
        let ca_pem = inline(cluster, "certificate-authority-data")?.ok_or(
            "its cluster has no certificate-authority; a cluster without one cannot be verified",
        )?;
        let certificate = inline(user, "client-certificate-data")?;
        let key = inline(user, "client-key-data")?;
        let identity = match (certificate, key, user["token"].as_str()) {
            (Some(certificate), Some(key), _) => {
                Identity::Certificate(ClientCertificate { certificate, key })
            }
            (_, _, Some(token)) => Identity::Token(token.to_owned()),
            _ => return Err("its user has neither a client certificate nor a token".to_owned()),
        };
        Ok(Access {
            server: server.trim_end_matches('/').to_owned(),
            ca_pem,
            identity,
        })
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

fn inline(object: &Value, field: &str) -> Result<Option<String>, String> {
    let Some(encoded) = object[field].as_str() else {
        return Ok(None);
    };
    let bytes = STANDARD
        .decode(encoded)
        .map_err(|error| format!("{field} is not base64: {error}"))?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| format!("{field} is not PEM"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_of_ours_is_read_back() {
        let pair = ClientCertificate {
            certificate: "cert".to_owned(),
            key: "key".to_owned(),
        };
        let written =
            Access::certificate("https://127.0.0.1:6443".to_owned(), "ca".to_owned(), pair)
                .kubeconfig();
        let read = Access::from_kubeconfig(&written).unwrap();
        assert_eq!(
            (read.server.as_str(), read.ca_pem.as_str()),
            ("https://127.0.0.1:6443", "ca")
        );
        assert!(
            matches!(read.identity, Identity::Certificate(pair) if pair.certificate == "cert" && pair.key == "key")
        );
    }

    #[test]
    fn a_user_who_logs_in_by_command_is_refused_by_reason() {
        let cluster =
            json!({ "server": "https://c", "certificate-authority-data": STANDARD.encode("ca") });
        let config = kubeconfig(&cluster, &json!({ "exec": { "command": "login" } }));
        let reason = Access::from_kubeconfig(&config).unwrap_err();
        assert!(
            reason.contains("neither a client certificate nor a token"),
            "{reason}"
        );
    }
}
