//! A certificate made when asked for, so that none lies in the repository.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A self-signed certificate and its key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pem: String,
}

impl Identity {
    /// For these host names or IP addresses. Clients trust it by [`Self::certificate_pem`].
    ///
    /// # Panics
    /// If a host is neither a name nor an address.
    pub fn generate(hosts: &[&str]) -> Self {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(hosts).expect("the hosts are DNS names or IP addresses");
        Self {
            certificate: made.cert.der().clone(),
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
            pem: made.cert.pem(),
        }
    }

    /// The certificate, to be trusted by clients.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring knows the default protocol versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .expect("certificate and key were made for each other");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}
