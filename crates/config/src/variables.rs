//! Where the values of `${…}` come from.

use std::path::{Path, PathBuf};

use fanlight_client_files::{ClientFile, Input};
use fanlight_settings::Secret;

use crate::{MAX_FILE_SIZE, text_file};

/// What the process that reads a configuration provides.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Looks up a variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Asks the user for an `${input:…}` that no variable has; `None` if there is nobody to be asked.
    pub ask: &'a dyn Fn(&Input) -> Option<String>,
}

/// The variables of one file.
pub(crate) struct Variables<'a> {
    environment: Environment<'a>,
    /// Variables in the file that `envFile` names.
    own: Vec<(String, Secret)>,
    of_client: Option<OfClient>,
    inputs: Vec<Input>,
}

/// What editors fill in.
struct OfClient {
    /// The folder of the file.
    folder: PathBuf,
    project: Option<PathBuf>,
    /// Whether files may be read.
    reads_files: bool,
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
            folder: absolute(origin.parent().unwrap_or(Path::new(""))),
            // A file in the user's folder is for all projects.
            project: file.project.as_deref().map(absolute).filter(|project| Some(project) != home.as_ref()),
            reads_files,
        });
        let inputs = client.map(|file| file.inputs.clone()).unwrap_or_default();
        Self { environment, own, of_client, inputs }
    }

    /// The folder that relative paths in the file are relative to.
    pub(crate) fn folder(&self, origin: &Path) -> PathBuf {
        let project = self.of_client.as_ref().and_then(|client| client.project.clone());
        project.unwrap_or_else(|| origin.parent().unwrap_or(Path::new("")).to_owned())
    }

    /// The value of a variable, of `input:name`, or of what editors fill in.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        if let Some(id) = name.strip_prefix("input:") {
            return self.input(id);
        }
        if let Some(value) = self.of_client.as_ref().and_then(|client| client.get(name, &self.environment)) {
            return Some(value);
        }
        let own = || self.own.iter().rev().find(|(known, _)| known == name);
        (self.environment.variable)(name).or_else(|| own().map(|(_, value)| value.expose().to_owned()))
    }

    fn input(&self, id: &str) -> Option<String> {
        let described = self.inputs.iter().find(|input| input.id == id);
        let input = described.cloned().unwrap_or_else(|| Input::undescribed(id));
        let own = || self.own.iter().find(|(known, _)| *known == Input::variable(id));
        (self.environment.variable)(&Input::variable(id))
            .or_else(|| own().map(|(_, value)| value.expose().to_owned()))
            .or_else(|| (self.environment.ask)(&input))
            .or(input.default)
    }
}

impl OfClient {
    fn get(&self, name: &str, environment: &Environment<'_>) -> Option<String> {
        let shown = |path: &Path| path.display().to_string();
        match name {
            "workspaceFolder" => self.project.as_deref().map(shown),
            "workspaceFolderBasename" => self.project.as_deref()?.file_name()?.to_str().map(str::to_owned),
            "userHome" => (environment.variable)("HOME").or_else(|| (environment.variable)("USERPROFILE")),
            _ => {
                let path = name.strip_prefix("file:").filter(|_| self.reads_files)?;
                let path = match path.strip_prefix("~/") {
                    Some(rest) => Path::new(&(environment.variable)("HOME")?).join(rest),
                    None => self.folder.join(path),
                };
                let (text, _) = text_file::read(&path, MAX_FILE_SIZE).ok()?;
                Some(text.trim().to_owned())
            }
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
