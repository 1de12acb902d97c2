//! TLS files named by an option of the configuration.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::path::Path;

use fanlight_config::settings::read_bounded;
use fanlight_config::{MAX_FILE_SIZE, Tls};

use super::{ClientCa, HttpVersions, TlsFiles, TlsServer};

/// The TLS of a listener, loaded from its files.
#[derive(Clone, Debug)]
pub struct LoadedTls {
    /// The TLS itself.
    pub server: TlsServer,
    /// Digests of the files, which a reload compares.
    pub marks: TlsMarks,
}

/// Digests that change with the files of a listener's TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsMarks {
    /// The digest of its certificate and key.
    own: u64,
    /// The digest of the requirements for client certificates.
    pub clients: u64,
}

impl LoadedTls {
    /// Reads the TLS of a listener from the files of `tls`, which is the value of `option`.
    ///
    /// # Errors
    ///
    /// A message that names the option and the files that cannot be used.
    pub fn read(tls: &Tls, option: &'static str, versions: HttpVersions) -> Result<Self, String> {
        TlsOption::read(tls, option)?.listener(versions)
    }
}

/// The files of a TLS option, read.
pub struct TlsOption<'a> {
    option: &'static str,
    tls: &'a Tls,
    /// The certificate, as PEM.
    pub certificate: Vec<u8>,
    /// The key of the certificate.
    pub key: Vec<u8>,
    /// The authorities of client certificates, and whether a client may have no certificate.
    pub ca: Option<(Vec<u8>, bool)>,
}

impl<'a> TlsOption<'a> {
    /// Reads the files of `tls`, which is the value of `option`.
    ///
    /// # Errors
    ///
    /// A message that names the option and the file that cannot be read.
    pub fn read(tls: &'a Tls, option: &'static str) -> Result<Self, String> {
        let ca = tls
            .client_ca()
            .map(|(file, is_required)| Ok::<_, String>((read(file, option)?, !is_required)));
        let (certificate, key) = (read(&tls.cert, option)?, read(&tls.key, option)?);
        Ok(Self {
            option,
            tls,
            certificate,
            key,
            ca: ca.transpose()?,
        })
    }

    /// The TLS of a listener with these files.
    ///
    /// # Errors
    ///
    /// A message that names the option and its files, if they cannot be used.
    pub fn listener(&self, versions: HttpVersions) -> Result<LoadedTls, String> {
        let ca = self.ca.as_ref();
        let client_ca = ca.map(|(certificates, is_optional)| ClientCa {
            certificates,
            is_optional: *is_optional,
        });
        let files = TlsFiles {
            certificate: &self.certificate,
            key: &self.key,
            client_ca,
        };
        let server = TlsServer::new(files, versions).map_err(|error| self.unusable(&error))?;
        let marks = TlsMarks {
            own: mark(&(&self.certificate, &self.key)),
            clients: mark(&self.ca),
        };
        Ok(LoadedTls { server, marks })
    }

    /// The message of an error in these files.
    pub fn unusable(&self, error: &dyn std::error::Error) -> String {
        let files: Vec<_> = self.tls.files().collect();
        format!(
            "`{}` cannot be used: {error}; its files: {}",
            self.option,
            files.join(", ")
        )
    }
}

fn mark(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn read(path: &str, option: &str) -> Result<Vec<u8>, String> {
    match read_bounded(Path::new(path), MAX_FILE_SIZE) {
        Ok(bytes) if bytes.len() <= MAX_FILE_SIZE => Ok(bytes),
        Ok(_) => Err(format!("`{option}` cannot be used: {path} is too large")),
        Err(error) => Err(format!(
            "`{option}` cannot be used: cannot read {path}: {error}"
        )),
    }
}
