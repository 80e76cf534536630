//! Certificates of one control plane: one authority that signs the API server's certificate, the clients' and, in the
//! controller manager's hands, certificate requests. kubeadm keeps several; nothing that a test can see depends on it.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

use super::StartError;

/// A client's certificate and key, both PEM.
#[derive(Clone, Debug)]
pub(super) struct ClientCertificate {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Everything that the servers need, as files, and what the launcher needs, as text.
#[derive(Debug)]
pub(super) struct Pki {
    pub(super) folder: PathBuf,
    pub(super) ca_pem: String,
    /// In `system:masters`, whom RBAC lets do everything.
    pub(super) admin: ClientCertificate,
    pub(super) controller_manager: ClientCertificate,
    pub(super) scheduler: ClientCertificate,
}

impl Pki {
    /// Makes all keys and certificates and writes `ca.{crt,key}`, `apiserver.{crt,key}` and `sa.{key,pub}` (the key
    /// that signs ServiceAccount tokens) into `folder`.
    pub(super) fn generate(folder: &Path) -> Result<Self, StartError> {
        std::fs::create_dir_all(folder)?;
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text);

        let ca_key = KeyPair::generate()?;
        let mut ca = params("kproxide-test-ca", None, &[])?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let ca_pem = ca.self_signed(&ca_key)?.pem();
        write("ca.crt", &ca_pem)?;
        write("ca.key", &ca_key.serialize_pem())?;
        let issuer = Issuer::new(ca, ca_key);

        // 10.96.0.1 is the first address of the service range: the `kubernetes` Service.
        let names = [
            "127.0.0.1",
            "::1",
            "10.96.0.1",
            "localhost",
            "kubernetes.default.svc",
        ];
        let mut serving = params("kube-apiserver", None, &names)?;
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let serving = sign(serving, &issuer)?;
        write("apiserver.crt", &serving.certificate)?;
        write("apiserver.key", &serving.key)?;

        let client = |name: &str, group: Option<&str>| {
            let mut params = params(name, group, &[])?;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            sign(params, &issuer)
        };
        let admin = client("kproxide-test-admin", Some("system:masters"))?;
        let controller_manager = client("system:kube-controller-manager", None)?;
        let scheduler = client("system:kube-scheduler", None)?;

        let tokens = KeyPair::generate()?;
        write("sa.key", &tokens.serialize_pem())?;
        write("sa.pub", &tokens.public_key_pem())?;

        Ok(Pki {
            folder: folder.to_owned(),
            ca_pem,
            admin,
            controller_manager,
            scheduler,
        })
    }
}

fn params(
    name: &str,
    group: Option<&str>,
    alternatives: &[&str],
) -> Result<CertificateParams, rcgen::Error> {
    let alternatives: Vec<String> = alternatives.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(alternatives)?;
    // Kubernetes reads the user from the common name and the groups from the organizations.
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn sign(
    params: CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<ClientCertificate, rcgen::Error> {
    let key = KeyPair::generate()?;
    Ok(ClientCertificate {
        certificate: params.signed_by(&key, issuer)?.pem(),
        key: key.serialize_pem(),
    })
}
