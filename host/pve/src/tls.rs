//! Whom we believe to be Proxmox.
//!
//! Proxmox: the default certificate is signed by a CA of the cluster's own, so people either copy that CA
//! (`/etc/pve/pve-root-ca.pem`) or pin the certificate's SHA-256 fingerprint as the web interface shows it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use sha2::{Digest as _, Sha256};

/// ProxmoxCluster's `tls`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The system's CA certificates: for an endpoint with a public certificate.
    System,
    /// Certificates signed by a CA in this PEM file.
    CaFile(PathBuf),
    /// The same, and what is in that file.
    Ca(PathBuf, Vec<u8>),
    /// Certificates with one of these fingerprints, of any issuer and for any name.
    Fingerprints(Vec<Fingerprint>),
    /// Any certificate. This is insecure: a server in between can read the token and take over the cluster.
    InsecureSkipVerify,
}

/// Why trust settings are unusable.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Not a fingerprint.
    #[error(
        "tls.fingerprints: {0:?} is not a SHA-256 fingerprint: 32 bytes in hex as `openssl x509 -noout -fingerprint -sha256` prints them"
    )]
    Fingerprint(String),
    /// Pinning without a pin.
    #[error("tls.fingerprints is empty: give at least one, or use tls.caFile")]
    NoFingerprints,
    /// The CA file cannot be read.
    #[error("tls.caFile {}: cannot be read as PEM", path.display())]
    CaFile {
        /// As configured.
        path: PathBuf,
        /// What happened.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The CA file holds nothing.
    #[error("tls.caFile {}: no certificate in it", .0.display())]
    NoCertificate(PathBuf),
}

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Fingerprint {
        Fingerprint(Sha256::digest(certificate).into())
    }
}

impl std::str::FromStr for Fingerprint {
    type Err = TlsError;

    /// `20:ED:95:…` in any case; the colons may be missing, and a prefix such as `sha256 Fingerprint=` may be there.
    fn from_str(text: &str) -> Result<Self, TlsError> {
        let refused = || TlsError::Fingerprint(text.to_owned());
        let value = text.rsplit_once('=').map_or(text, |(_, value)| value);
        let digits: Vec<u8> = value
            .chars()
            .filter(|character| !matches!(character, ':' | ' '))
            .map(|character| {
                character
                    .to_digit(16)
                    .and_then(|digit| u8::try_from(digit).ok())
                    .ok_or_else(refused)
            })
            .collect::<Result<_, _>>()?;
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(refused());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Fingerprint(bytes))
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            let colon = if position == 0 { "" } else { ":" };
            write!(out, "{colon}{byte:02X}")?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, out)
    }
}

/// A certificate that was not accepted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TrustFailure {
    /// Pinned, and another one shown.
    #[error(
        "the endpoint's certificate has the fingerprint {seen}, tls.fingerprints allows {}: if the certificate was renewed on purpose, replace the old fingerprint",
        expected.iter().map(Fingerprint::to_string).collect::<Vec<_>>().join(", ")
    )]
    Fingerprint {
        /// What the settings allow.
        expected: Vec<Fingerprint>,
        /// What the endpoint showed.
        seen: Fingerprint,
    },
    /// Refused by the usual rules.
    #[error(
        "the endpoint's certificate is not trusted ({0}): set tls.caFile to a copy of /etc/pve/pve-root-ca.pem, or tls.fingerprints to the certificate's SHA-256 fingerprint"
    )]
    Chain(String),
}

impl TrustFailure {
    /// The failed verification among the causes of `error`, if that is what it is.
    pub(super) fn find(error: &(dyn std::error::Error + 'static)) -> Option<TrustFailure> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            // An io::Error shows its inner error's source instead of the inner error.
            let inner = error
                .downcast_ref::<std::io::Error>()
                .and_then(std::io::Error::get_ref)
                .map(|inner| inner as &(dyn std::error::Error + 'static));
            for error in [Some(error), inner].into_iter().flatten() {
                if let Some(rustls::Error::InvalidCertificate(refused)) = error.downcast_ref() {
                    return Some(TrustFailure::from(refused));
                }
            }
            cause = inner
                .filter(|inner| inner.is::<std::io::Error>())
                .or_else(|| error.source());
        }
        None
    }
}

impl From<&CertificateError> for TrustFailure {
    fn from(refused: &CertificateError) -> Self {
        if let CertificateError::Other(other) = refused
            && let Some(failure) = other.0.downcast_ref::<TrustFailure>()
        {
            return failure.clone();
        }
        TrustFailure::Chain(refused.to_string())
    }
}

impl Trust {
    /// The TLS settings, or none where the HTTP client's own defaults (the system's CAs) apply.
    ///
    /// # Errors
    /// The CA file is unreadable or empty, or there is no fingerprint.
    pub(super) fn client_config(&self) -> Result<Option<ClientConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("ring supports the default protocol versions");
        let verifier = match self {
            Trust::System => {
                // The HTTP client asks the process for its provider. A second installation fails, and changes nothing.
                let _ = rustls::crypto::ring::default_provider().install_default();
                return Ok(None);
            }
            Trust::CaFile(path) => {
                let roots = read_ca(path)?;
                return Ok(Some(
                    builder.with_root_certificates(roots).with_no_client_auth(),
                ));
            }
            Trust::Ca(path, pem) => {
                let roots = ca_of(path, pem)?;
                return Ok(Some(
                    builder.with_root_certificates(roots).with_no_client_auth(),
                ));
            }
            Trust::Fingerprints(expected) if expected.is_empty() => {
                return Err(TlsError::NoFingerprints);
            }
            Trust::Fingerprints(expected) => Pinned {
                expected: Some(expected.clone()),
                provider,
            },
            Trust::InsecureSkipVerify => {
                tracing::warn!(
                    "tls.insecureSkipVerify is on: anyone between kproxide and Proxmox can read the credentials; use tls.fingerprints"
                );
                Pinned {
                    expected: None,
                    provider,
                }
            }
        };
        Ok(Some(
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth(),
        ))
    }
}

fn read_ca(path: &Path) -> Result<RootCertStore, TlsError> {
    let pem = std::fs::read(path).map_err(|error| TlsError::CaFile {
        path: path.to_owned(),
        source: error.into(),
    })?;
    ca_of(path, &pem)
}

fn ca_of(path: &Path, pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let unreadable = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::CaFile {
        path: path.to_owned(),
        source,
    };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| unreadable(error.to_string().into()))?;
        store
            .add(certificate)
            .map_err(|error| unreadable(error.into()))?;
    }
    if store.is_empty() {
        return Err(TlsError::NoCertificate(path.to_owned()));
    }
    Ok(store)
}

/// Accepts the pinned certificates, or any. That the endpoint owns the certificate's key is checked in both cases.
#[derive(Debug)]
struct Pinned {
    /// None: any.
    expected: Option<Vec<Fingerprint>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let seen = Fingerprint::of(certificate);
        match &self.expected {
            Some(expected) if !expected.contains(&seen) => {
                let failure = TrustFailure::Fingerprint {
                    expected: expected.clone(),
                    seen,
                };
                Err(CertificateError::Other(rustls::OtherError(Arc::new(failure))).into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_proxmox_writes_them() {
        let proxmox = "20:ED:95:02:68:25:1D:7F:DF:46:DA:44:77:89:BA:3D:AC:C8:78:D2:E1:95:FE:36:B0:12:7D:D4:C1:98:CF:C7";
        let read: Fingerprint = proxmox.parse().unwrap();
        assert_eq!(read.to_string(), proxmox);
        for same in [
            proxmox.to_lowercase(),
            proxmox.replace(':', ""),
            format!("sha256 Fingerprint={proxmox}"),
        ] {
            assert_eq!(same.parse::<Fingerprint>().unwrap(), read, "{same}");
        }
    }

    #[test]
    fn a_wrong_fingerprint_setting_is_named() {
        let error = "20:ED:95".parse::<Fingerprint>().unwrap_err().to_string();
        assert!(
            error.starts_with("tls.fingerprints: \"20:ED:95\" is not"),
            "{error}"
        );
        assert!("zz".repeat(32).parse::<Fingerprint>().is_err());
        assert!(Trust::Fingerprints(vec![]).client_config().is_err());
    }

    #[test]
    fn an_empty_ca_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Trust::CaFile(file.path().to_owned())
            .client_config()
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("no certificate in it"), "{error}");
    }
}
