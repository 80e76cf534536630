//! What the cluster says of itself: its version, and what machines need to join it.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::Problem;
use crate::args::Way;
use kproxide_common::chain::chain;
use kproxide_common::hex::hex;
use kproxide_kube::client::Client;

/// Port of RKE2's servers at which agents register.
const RKE2_PORT: u16 = 9345;
const SEQUENCE: u8 = 0x30;

/// What is known of the cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kubernetes {
    /// Such as `v1.33.4+k3s1`.
    pub(super) version: String,
    /// As the version or kubeadm's own objects say.
    pub(super) way: Option<Way>,
    /// Host and port of an API server, as the API servers know themselves.
    pub(super) server: Option<(String, u16)>,
    /// `HOST:PORT` that kubeadm has published.
    pub(super) published: Option<String>,
    /// `sha256:…` of the authority's public key, for kubeadm.
    pub(super) hash: Option<String>,
}

impl Kubernetes {
    /// # Errors
    /// It cannot be reached, or refuses.
    pub(super) async fn read(kube: &Client) -> Result<Self, Problem> {
        let ask = async |path: &str| match kube.ask(path).await {
            Ok((200, answer)) => Ok(Some(answer)),
            Ok((401, why)) => Err(Problem::kubernetes(format!(
                "Kubernetes refuses the credentials: {}",
                why.as_str().unwrap_or_default()
            ))),
            // Whoever may not read it is asked.
            Ok(_) => Ok(None),
            Err(error) => Err(Problem::kubernetes(format!(
                "Kubernetes does not answer: {}",
                chain(&error)
            ))),
        };
        let version = ask("/version").await?.unwrap_or_default();
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Dkubernetes";
        let slices = ask(slices).await?.unwrap_or_default();
        let kubeadm = ask("/api/v1/namespaces/kube-system/configmaps/kubeadm-config").await?;
        let info = ask("/api/v1/namespaces/kube-public/configmaps/cluster-info").await?;
        let root = ask("/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt").await?;
        let version = version["gitVersion"].as_str().unwrap_or("unknown");
        Ok(Self {
            way: match (version, kubeadm) {
                (version, _) if version.contains("+k3s") => Some(Way::K3s),
                (version, _) if version.contains("+rke2") => Some(Way::Rke2),
                (_, Some(_)) => Some(Way::Kubeadm),
                (_, None) => None,
            },
            version: version.to_owned(),
            server: server(&slices),
            published: info.as_ref().and_then(published),
            hash: root.as_ref().and_then(hash),
        })
    }

    /// Where machines join, as the script for that way writes it.
    pub(super) fn server_for(&self, way: Way) -> Option<String> {
        let at = |(host, port): (&str, u16)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let server = self.server.as_ref().map(|(host, port)| (&**host, *port));
        match way {
            Way::K3s => server.map(|it| format!("https://{}", at(it))),
            Way::Rke2 => server.map(|(host, _)| format!("https://{}", at((host, RKE2_PORT)))),
            Way::Kubeadm => self.published.clone().or_else(|| server.map(at)),
            Way::Itself => None,
        }
    }
}

/// The first of the API servers, by address.
fn server(slices: &Value) -> Option<(String, u16)> {
    let slices = slices["items"].as_array()?.iter();
    let slices = slices.filter_map(|it| serde_json::from_value::<EndpointSlice>(it.clone()).ok());
    let all = slices.flat_map(|slice| {
        let port = slice.ports.iter().flatten().find_map(|it| it.port);
        let port = port
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(6443);
        let addresses = slice.endpoints.into_iter().flat_map(|it| it.addresses);
        addresses.map(move |address| (address, port))
    });
    all.min()
}

/// The server in the kubeconfig that kubeadm publishes for machines that join.
fn published(info: &Value) -> Option<String> {
    let kubeconfig: Value = serde_saphyr::from_str(info["data"]["kubeconfig"].as_str()?).ok()?;
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str()?;
    Some(
        server
            .strip_prefix("https://")?
            .trim_end_matches('/')
            .to_owned(),
    )
}

/// As kubeadm computes it: SHA-256 of the SubjectPublicKeyInfo in DER.
fn hash(root: &Value) -> Option<String> {
    let pem = root["data"]["ca.crt"].as_str()?;
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let mut store = RootCertStore::empty();
    store.add(certificate).ok()?;
    // Without the head of its sequence, so that one is written again.
    let inner = store.roots.first()?.subject_public_key_info.as_ref();
    let mut der = vec![SEQUENCE];
    let length = inner.len();
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => der.push(short),
        Ok(_) | Err(_) => {
            let bytes = length.to_be_bytes();
            let bytes: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
            der.push(0x80 | u8::try_from(bytes.len()).ok()?);
            der.extend(bytes);
        }
    }
    der.extend_from_slice(inner);
    Some(format!("sha256:{}", hex(&Sha256::digest(der))))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, PublicKeyData as _};
    use serde_json::json;

    use super::super::super::exit::Exit;
    use super::*;

    /// An API server that has these answers, by path, and refuses all else.
    fn serving(answers: Vec<(&'static str, Value)>) -> Client {
        Client::from_service(tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let found = answers.iter().find(|(of, _)| path.ends_with(of));
            let (status, body) = match found {
                Some((_, answer)) => (200, answer.clone()),
                None => (
                    403,
                    json!({"kind": "Status", "status": "Failure", "code": 403, "message": "no"}),
                ),
            };
            async move {
                let body = Full::new(Bytes::from(body.to_string()));
                Response::builder().status(status).body(body)
            }
        }))
    }

    fn slices(addresses: &[&str], port: u16) -> Value {
        let endpoint = json!({"addresses": addresses});
        json!({"items": [{"addressType": "IPv4", "endpoints": [endpoint], "ports": [{"name": "https", "port": port}]}]})
    }

    #[tokio::test]
    async fn the_distribution_and_its_server_are_what_the_cluster_says() {
        for (version, addresses, port, way, server) in [
            (
                "v1.33.4+k3s1",
                &["10.0.0.2", "10.0.0.1"][..],
                6443,
                Some(Way::K3s),
                "https://10.0.0.1:6443",
            ),
            (
                "v1.33.4+k3s1",
                &["fd00::1"],
                7443,
                Some(Way::K3s),
                "https://[fd00::1]:7443",
            ),
            (
                "v1.33.4+rke2r1",
                &["10.0.0.1"],
                6443,
                Some(Way::Rke2),
                "https://10.0.0.1:9345",
            ),
            ("v1.33.4", &["10.0.0.1"], 6443, None, ""),
        ] {
            let kube = serving(vec![
                ("/version", json!({"gitVersion": version})),
                ("/endpointslices", slices(addresses, port)),
            ]);
            let known = Kubernetes::read(&kube).await.unwrap();
            assert_eq!((known.version.as_str(), known.way), (version, way));
            let at = known.way.and_then(|way| known.server_for(way));
            assert_eq!(at.unwrap_or_default(), server);
            // Without kubeadm's own word it is the API server, without a scheme.
            let bare = known.server_for(Way::Kubeadm).unwrap();
            assert!(
                bare.ends_with(&format!(":{port}")) && !bare.contains("//"),
                "{bare}"
            );
        }
    }

    #[tokio::test]
    async fn kubeadm_says_where_machines_join_and_by_which_key_they_know_the_server() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap();
        let kubeconfig = "clusters:\n- cluster: {server: 'https://k8s.lan:6443'}\n";
        let kube = serving(vec![
            ("/version", json!({"gitVersion": "v1.33.4"})),
            ("/endpointslices", slices(&["10.0.0.1"], 6443)),
            ("/kubeadm-config", json!({"data": {}})),
            ("/cluster-info", json!({"data": {"kubeconfig": kubeconfig}})),
            (
                "/kube-root-ca.crt",
                json!({"data": {"ca.crt": authority.pem()}}),
            ),
        ]);
        let known = Kubernetes::read(&kube).await.unwrap();
        assert_eq!(known.way, Some(Way::Kubeadm));
        assert_eq!(known.server_for(Way::Kubeadm).unwrap(), "k8s.lan:6443");
        let expected = hex(&Sha256::digest(key.subject_public_key_info()));
        assert_eq!(known.hash, Some(format!("sha256:{expected}")));
    }

    #[tokio::test]
    async fn a_server_that_refuses_or_is_not_there_is_told_apart() {
        let refused = Client::from_service(tower::service_fn(async |_: Request<Body>| {
            let body = json!({"kind": "Status", "status": "Failure", "code": 401, "message": "who are you"});
            let body = Full::new(Bytes::from(body.to_string()));
            Response::builder().status(401).body(body)
        }));
        let problem = Kubernetes::read(&refused).await.unwrap_err();
        assert_eq!(problem.exit, Exit::Kubernetes);
        assert!(
            problem
                .text
                .contains("refuses the credentials: who are you"),
            "{}",
            problem.text
        );
        let broken = Client::from_service(tower::service_fn(async |_: Request<Body>| {
            Err::<Response<Full<Bytes>>, _>(std::io::Error::other("no route to it"))
        }));
        let problem = Kubernetes::read(&broken).await.unwrap_err();
        assert_eq!(problem.exit, Exit::Kubernetes);
        assert!(problem.text.contains("no route to it"), "{}", problem.text);
    }
}
