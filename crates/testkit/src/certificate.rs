//! Certificates for servers of tests: an authority, and what it signs.
//!
//! Each is made anew, so that no test trusts another's by accident. Refuses to be used for anything real:
//! keys are kept in memory and in the folder of a throwaway server.

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// What a server shows, and how it proves that it is its own; both as PEM.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Certificate {
    /// One that signed itself, as a root that is a server at once.
    pub fn of_itself(name: &str) -> Result<Self> {
        let (params, key) = (root(vec![name.to_owned()])?, KeyPair::generate()?);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, key: key.serialize_pem() })
    }
}

/// Whoever trusts its certificate trusts those that it signs.
pub struct Authority {
    /// Its own certificate, as PEM.
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one that nobody knows yet.
    pub fn new() -> Result<Self> {
        let (params, key) = (root(Vec::new())?, KeyPair::generate()?);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// Signs a certificate for the server of this name or address.
    pub fn sign(&self, name: &str) -> Result<Certificate> {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec![name.to_owned()])?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Certificate { certificate, key: key.serialize_pem() })
    }
}

fn root(names: Vec<String>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(params)
}
