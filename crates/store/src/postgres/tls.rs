//! TLS to the server, by the words of libpq: `sslmode` and `sslrootcert` in the URL.
//!
//! `prefer` (the default) and `require` encrypt without asking who answers; `verify-ca` asks for a certificate
//! that a trusted root signed, `verify-full` also for one with the name of the host. `require` with a root
//! asks for as much as `verify-ca`, as libpq does. Roots are those of `sslrootcert`, or else the system's.
//!
//! Refuses `allow`, which would send the first words in the clear, and to go on with less than was asked for.

mod verify;

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Error, Result};
use verify::{Any, Signed};

/// How the name of the host counts in a certificate that is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Any,
    Host,
}

/// What a URL says of TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Tls {
    mode: Option<String>,
    root: Option<String>,
}

impl Tls {
    /// Takes an option of the URL, if it is one of these; the value is as it was before it was escaped.
    pub fn take(&mut self, name: &str, value: &str) -> bool {
        match name {
            "sslmode" => self.mode = Some(value.to_owned()),
            "sslrootcert" => self.root = Some(value.to_owned()),
            _ => return false,
        }
        true
    }

    /// Whether a connection is encrypted, and how; reads the roots.
    pub fn connector(&self) -> Result<(SslMode, MakeRustlsConnect)> {
        let mode = self.mode.as_deref().unwrap_or(match self.root.as_deref() {
            // As libpq: who trusts the whole world must look at the name.
            Some("system") => "verify-full",
            _ => "prefer",
        });
        let (ssl, name) = match (mode, &self.root) {
            ("disable", _) => (SslMode::Disable, None),
            ("prefer", _) => (SslMode::Prefer, None),
            ("require", None) => (SslMode::Require, None),
            ("require", Some(_)) | ("verify-ca", _) => (SslMode::Require, Some(Name::Any)),
            ("verify-full", _) => (SslMode::Require, Some(Name::Host)),
            _ => {
                return Err(refused(format!(
                    "sslmode={mode} is not known; use disable, prefer, require, verify-ca or verify-full"
                )));
            }
        };
        if name == Some(Name::Any) && self.root.as_deref() == Some("system") {
            let reason = "sslrootcert=system trusts whom the whole world trusts, so the name must \
                          be looked at: use sslmode=verify-full";
            return Err(refused(reason.to_owned()));
        }
        Ok((ssl, MakeRustlsConnect::new(self.config(name)?)))
    }

    fn config(&self, name: Option<Name>) -> Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| refused(e.to_string()))?
            .dangerous();
        let builder = match name {
            None => builder.with_custom_certificate_verifier(Arc::new(Any::new(provider))),
            Some(name) => builder.with_custom_certificate_verifier(self.signed(name, provider)?),
        };
        Ok(builder.with_no_client_auth())
    }

    fn signed(&self, name: Name, provider: Arc<CryptoProvider>) -> Result<Arc<Signed>> {
        let certificates = match self.root.as_deref() {
            None | Some("system") => of_system()?,
            Some(file) => of_file(Path::new(file))?,
        };
        let mut roots = RootCertStore::empty();
        // A system's list may hold some that nobody can read; one file must be readable as a whole.
        let (_, unreadable) = roots.add_parsable_certificates(certificates.iter().cloned());
        if let Some(file) = self.root.as_deref().filter(|file| *file != "system" && unreadable > 0)
        {
            return Err(refused(format!(
                "{file} (sslrootcert) holds a certificate that is damaged"
            )));
        }
        let pinned = if self.root.is_some() { certificates } else { Vec::new() };
        Signed::new(roots, pinned, name == Name::Host, provider).map_err(refused).map(Arc::new)
    }
}

fn of_file(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let damaged = |why: String| {
        refused(format!(
            "the certificates of {} (sslrootcert) cannot be read: {why}",
            file.display()
        ))
    };
    let read = CertificateDer::pem_file_iter(file).map_err(|e| damaged(e.to_string()))?;
    let certificates: Vec<_> =
        read.collect::<Result<_, _>>().map_err(|e| damaged(e.to_string()))?;
    if certificates.is_empty() {
        return Err(damaged("there is none in it".to_owned()));
    }
    Ok(certificates)
}

fn of_system() -> Result<Vec<CertificateDer<'static>>> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
        return Err(refused(format!(
            "this system has no list of trusted certificates{why}; name a file: sslrootcert=FILE"
        )));
    }
    Ok(found.certs)
}

pub(super) fn refused(reason: String) -> Error {
    Error::TlsRefused { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(mode: &str, root: &str) -> Tls {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Tls { mode: some(mode), root: some(root) }
    }

    #[test]
    fn the_words_of_libpq_are_understood() {
        for (mode, expected) in [
            ("", Some(SslMode::Prefer)),
            ("disable", Some(SslMode::Disable)),
            ("prefer", Some(SslMode::Prefer)),
            ("require", Some(SslMode::Require)),
            ("allow", None),
            ("maybe", None),
        ] {
            let found = tls(mode, "").connector();
            assert_eq!(found.as_ref().ok().map(|(mode, _)| *mode), expected, "{mode}");
            if let Err(error) = found {
                assert_eq!(error.code(), "store_tls_refused");
            }
        }
    }

    #[test]
    fn a_root_that_cannot_be_read_is_an_error_and_not_a_weaker_connection() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let Err(error) = tls(mode, "/nowhere/root.crt").connector() else {
                panic!("{mode} went on without its roots");
            };
            assert!(error.to_string().contains("/nowhere/root.crt"), "{error}");
        }
    }

    #[test]
    fn the_roots_of_a_system_ask_for_the_name() {
        let Err(error) = tls("verify-ca", "system").connector() else { panic!("it was taken") };
        assert!(error.to_string().contains("verify-full"), "{error}");
    }
}
