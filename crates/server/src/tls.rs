//! TLS from two files, a certificate and its key, which are read again when they change.
//!
//! The files are read every few seconds and compared with what is shown: no signal has to be sent by whoever renews
//! them, a renewal by rename, by symlink (as Kubernetes does it) or in place is seen alike, on every file system, and
//! two small reads cost nothing. A whole configuration is replaced, so that a session that began under the old
//! certificate is not resumed under the new one; connections that are open stay.
//!
//! It refuses to start with files that do not fit. Once it serves, files that do not fit change nothing: the
//! certificate before them stays, and the log and a metric say so until they do.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidemill_core::measure::Count;
use tidemill_core::measure::page::{Form, Metric, Page};
use tokio_rustls::TlsAcceptor;

/// What is spoken inside, the best first: as the plain listener does.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// A larger file is no certificate and no key.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Where a certificate and its key are, both as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server first, then those that lead to the root.
    pub certificate: PathBuf,
    /// The private key, not encrypted: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Why files cannot be used: which one, what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the file {} for TLS: {reason}", file.display())]
pub struct TlsInvalid {
    /// The file that is wrong, or the key that fits no certificate.
    pub file: PathBuf,
    /// What is wrong with it, and what to do.
    pub reason: String,
}

/// What stood in the files, to see that it has changed.
pub(crate) type Found = (Vec<u8>, Vec<u8>);

/// What is shown to new connections, and what became of the files since.
pub(crate) struct Tls {
    files: TlsFiles,
    shown: Mutex<Arc<ServerConfig>>,
    reloads: Count,
    handshakes_failed: Count,
    is_refused: AtomicBool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files; they must fit. Answers also what to compare later readings with.
    pub(crate) fn load(files: TlsFiles) -> Result<(Self, Found), TlsInvalid> {
        let found = read_both(&files)?;
        let shown = Mutex::new(Arc::new(configure(&files, &found)?));
        let (reloads, handshakes_failed) = (Count::default(), Count::default());
        Ok((Self { files, shown, reloads, handshakes_failed, is_refused: false.into() }, found))
    }

    /// Shows the present certificate to one connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&*self.shown.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// A client did not come through the handshake: not in time, or without a common word.
    pub(crate) fn handshake_failed(&self) {
        self.handshakes_failed.add(1);
    }

    /// Looks at the files at this pace, for ever.
    pub(crate) async fn watch(self: Arc<Self>, mut found: Found, pace: Duration) {
        let mut refused = None;
        loop {
            tokio::time::sleep(pace).await;
            let this = Arc::clone(&self);
            // Reading may wait for a disk that is elsewhere.
            let looked = tokio::task::spawn_blocking(move || {
                let outcome = this.look(&found);
                (found, outcome)
            });
            let Ok((before, outcome)) = looked.await else { return };
            found = before;
            match outcome {
                Ok(None) if refused.take().is_some() => {
                    tracing::info!("the files of the certificate are as they were");
                }
                Ok(None) => {}
                Ok(Some(new)) => {
                    (found, refused) = (new, None);
                    self.reloads.add(1);
                    tracing::info!(file = %self.files.certificate.display(), "a new certificate is shown");
                }
                Err(error) => {
                    if refused.as_ref() != Some(&error) {
                        let code = "tls_invalid";
                        tracing::error!(code, %error, "the certificate before is shown on");
                        refused = Some(error);
                    }
                }
            }
            self.is_refused.store(refused.is_some(), Relaxed);
        }
    }

    /// Shows what is in the files, if that has changed and can be.
    fn look(&self, before: &Found) -> Result<Option<Found>, TlsInvalid> {
        let found = read_both(&self.files)?;
        if found == *before {
            return Ok(None);
        }
        let new = Arc::new(configure(&self.files, &found)?);
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(Some(found))
    }

    /// Writes what was measured.
    pub(crate) fn measured(&self) -> String {
        let mut page = Page::default();
        for (metric, value) in [
            (&REFUSED, f64::from(u8::from(self.is_refused.load(Relaxed)))),
            (&RELOADS, self.reloads.read() as f64),
            (&HANDSHAKES_FAILED, self.handshakes_failed.read() as f64),
        ] {
            page.begin(metric);
            page.value(metric, &[], value);
        }
        page.into_text()
    }
}

const REFUSED: Metric = Metric {
    name: "tidemill_tls_files_refused",
    form: Form::Gauge,
    help: "1 while the files of the certificate cannot be used and the one before is shown.",
    labels: &[],
};
const RELOADS: Metric = Metric {
    name: "tidemill_tls_reloads_total",
    form: Form::Counter,
    help: "How often a new certificate was taken from the files.",
    labels: &[],
};
const HANDSHAKES_FAILED: Metric = Metric {
    name: "tidemill_tls_handshakes_failed_total",
    form: Form::Counter,
    help: "Connections that did not come through the handshake, in time or at all.",
    labels: &[],
};

fn read_both(files: &TlsFiles) -> Result<Found, TlsInvalid> {
    Ok((read(&files.certificate)?, read(&files.key)?))
}

fn read(file: &Path) -> Result<Vec<u8>, TlsInvalid> {
    let mut bytes = Vec::new();
    let read =
        File::open(file).and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 <= FILE_BYTES_MAX => Ok(bytes),
        Ok(_) => Err(invalid(
            file,
            format!("it has more than {FILE_BYTES_MAX} bytes; name the PEM file"),
        )),
        Err(error) => Err(invalid(file, unreadable(&error))),
    }
}

fn unreadable(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "; correct the path",
        io::ErrorKind::PermissionDenied => "; let the user of this process read it",
        io::ErrorKind::IsADirectory => "; name the file in it",
        _ => "; name a file that can be",
    };
    format!("it cannot be read ({error}){advice}")
}

fn configure(files: &TlsFiles, found: &Found) -> Result<ServerConfig, TlsInvalid> {
    let (certificate, key) = (files.certificate.as_path(), files.key.as_path());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&found.0).collect();
    let chain = chain.map_err(|error| invalid(certificate, no_pem(&error, "CERTIFICATE")))?;
    if chain.is_empty() {
        let reason =
            "there is no certificate in it; it should begin with -----BEGIN CERTIFICATE-----";
        return Err(invalid(certificate, reason.to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_slice(&found.1).map_err(|error| {
        invalid(
            key,
            match error {
                pem::Error::NoItemsFound => {
                    "there is no private key in it; it should begin with -----BEGIN PRIVATE \
                                         KEY-----, and not be encrypted"
                        .to_owned()
                }
                error => no_pem(&error, "PRIVATE KEY"),
            },
        )
    })?;
    let wrong = |error: rustls::Error| match error {
        rustls::Error::InconsistentKeys(_) => invalid(
            key,
            format!(
                "it is not the key of the certificate in {}; name both of one pair",
                certificate.display()
            ),
        ),
        rustls::Error::InvalidCertificate(why) => {
            let reason = format!(
                "its first certificate cannot be read ({why}); get it anew from whoever issued it"
            );
            invalid(certificate, reason)
        }
        error => invalid(
            key,
            format!(
                "the key cannot be used ({error}); make one of RSA, ECDSA or Ed25519, as PKCS#8"
            ),
        ),
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(wrong)?;
    let mut config =
        builder.with_no_client_auth().with_single_cert(chain, secret).map_err(wrong)?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(config)
}

fn no_pem(error: &pem::Error, what: &str) -> String {
    format!("it is no PEM file ({error}); name one with -----BEGIN {what}----- in it")
}

fn invalid(file: &Path, reason: String) -> TlsInvalid {
    TlsInvalid { file: file.to_owned(), reason }
}
