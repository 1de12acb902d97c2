//! The sources of values for `${…}`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use crate::client_files::{ClientFile, Input};
use crate::{ConfigFile, MAX_FILE_SIZE, Secret, SecretReference, text_file};

/// The reading process's contribution to a configuration.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Looks up a variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Asks the user for an `${input:…}` without a variable; `None` if nobody can be asked.
    pub ask: &'a dyn Fn(&Input) -> Option<String>,
    /// Reads a secret outside of files; returns the reason if there is none.
    pub secret: &'a dyn Fn(&SecretReference) -> Result<String, String>,
}

impl<'a> Environment<'a> {
    /// An environment with variables only: nobody is asked, and secrets outside of files are not
    /// read.
    pub fn from_variables(variable: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            variable,
            ask: &|_| None,
            secret: &|_| Err("this command does not read it".to_owned()),
        }
    }

    /// The same environment, but secrets outside of files count as present, for readers that only
    /// look at the configuration.
    pub fn with_unread_secrets(variable: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            secret: &|_| Ok("unread".to_owned()),
            ..Self::from_variables(variable)
        }
    }
}

/// Looks up the values of expressions in a text.
pub(crate) trait Lookup {
    /// The value of a variable, or of `input:name`.
    fn variable(&self, name: &str) -> Option<String>;

    /// A secret from elsewhere; returns the reason if there is none.
    fn secret(&self, reference: &SecretReference) -> Result<String, String>;
}

/// A lookup with variables only.
impl<F: Fn(&str) -> Option<String>> Lookup for F {
    fn variable(&self, name: &str) -> Option<String> {
        self(name)
    }

    fn secret(&self, _: &SecretReference) -> Result<String, String> {
        Err("secrets are not read here".to_owned())
    }
}

/// The variables of one file.
pub(crate) struct Variables<'a> {
    environment: Environment<'a>,
    /// Variables in the file that `envFile` names.
    own: Vec<(String, Secret)>,
    of_client: Option<OfClient>,
    inputs: Vec<Input>,
    /// The folder of the file.
    folder: PathBuf,
    /// Whether files may be read.
    reads_files: bool,
    /// The files that were read.
    read: RefCell<Vec<ConfigFile>>,
}

/// The values that editors fill in.
struct OfClient {
    project: Option<PathBuf>,
}

impl<'a> Variables<'a> {
    pub(crate) fn new(
        environment: Environment<'a>,
        origin: &Path,
        client: Option<&ClientFile>,
        own: Vec<(String, Secret)>,
        reads_files: bool,
    ) -> Self {
        let home = (environment.variable)("HOME").map(PathBuf::from);
        let of_client = client.map(|file| OfClient {
            // A file in the user's folder applies to all projects.
            project: file
                .project
                .as_deref()
                .map(absolute)
                .filter(|project| Some(project) != home.as_ref()),
        });
        let inputs = client.map(|file| file.inputs.clone()).unwrap_or_default();
        let folder = absolute(origin.parent().unwrap_or(Path::new("")));
        Self {
            environment,
            own,
            of_client,
            inputs,
            folder,
            reads_files,
            read: RefCell::default(),
        }
    }

    /// The base folder for relative paths in the file.
    pub(crate) fn folder(&self, origin: &Path) -> PathBuf {
        let project = self
            .of_client
            .as_ref()
            .and_then(|client| client.project.clone());
        project.unwrap_or_else(|| origin.parent().unwrap_or(Path::new("")).to_owned())
    }

    /// The files that were read for secrets.
    pub(crate) fn files(self) -> Vec<ConfigFile> {
        self.read.into_inner()
    }

    /// The secret in a file, without the line break at its end.
    fn file(&self, path: &str) -> Result<String, String> {
        if !self.reads_files {
            return Err("files are not read here".to_owned());
        }
        let path = match path.strip_prefix("~/") {
            Some(rest) => {
                let home =
                    (self.environment.variable)("HOME").ok_or("the variable `HOME` is not set")?;
                Path::new(&home).join(rest)
            }
            None => self.folder.join(path),
        };
        let read = text_file::read(&path, MAX_FILE_SIZE);
        let file = read.as_ref().map(|(_, file)| file.clone());
        let missing = |_| ConfigFile {
            path,
            fingerprint: None,
        };
        self.read.borrow_mut().push(file.unwrap_or_else(missing));
        let (text, _) = read.map_err(|errors| errors.first_message())?;
        // In clients' files this follows the clients' own behaviour.
        let is_of_client = self.of_client.is_some();
        Ok(if is_of_client {
            text.trim()
        } else {
            text.trim_end_matches(['\n', '\r'])
        }
        .to_owned())
    }

    fn input(&self, id: &str) -> Option<String> {
        let described = self.inputs.iter().find(|input| input.id == id);
        let input = described.cloned().unwrap_or_else(|| Input::undescribed(id));
        let own = || {
            self.own
                .iter()
                .find(|(known, _)| *known == Input::variable(id))
        };
        (self.environment.variable)(&Input::variable(id))
            .or_else(|| own().map(|(_, value)| value.expose().to_owned()))
            .or_else(|| (self.environment.ask)(&input))
            .or(input.default)
    }
}

impl Lookup for Variables<'_> {
    /// The value of a variable, of `input:name`, or of an editor's variable.
    fn variable(&self, name: &str) -> Option<String> {
        if let Some(id) = name.strip_prefix("input:") {
            return self.input(id);
        }
        if let Some(value) = self
            .of_client
            .as_ref()
            .and_then(|client| client.get(name, &self.environment))
        {
            return Some(value);
        }
        let own = || self.own.iter().rev().find(|(known, _)| known == name);
        (self.environment.variable)(name)
            .or_else(|| own().map(|(_, value)| value.expose().to_owned()))
    }

    fn secret(&self, reference: &SecretReference) -> Result<String, String> {
        match reference {
            // A reader that shows what is written answers for the file.
            SecretReference::File { path } => (self.environment.variable)(&format!("file:{path}"))
                .map_or_else(|| self.file(path), Ok),
            _ if self.of_client.is_some() => Err(
                "only files of Fanlight's own may name it, and this is the file of a client"
                    .to_owned(),
            ),
            reference => (self.environment.secret)(reference),
        }
    }
}

impl OfClient {
    fn get(&self, name: &str, environment: &Environment<'_>) -> Option<String> {
        let shown = |path: &Path| path.display().to_string();
        match name {
            "workspaceFolder" => self.project.as_deref().map(shown),
            "workspaceFolderBasename" => self
                .project
                .as_deref()?
                .file_name()?
                .to_str()
                .map(str::to_owned),
            "userHome" => {
                (environment.variable)("HOME").or_else(|| (environment.variable)("USERPROFILE"))
            }
            _ => None,
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
