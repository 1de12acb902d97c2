//! One file as a tree in Fanlight's own notation, also for clients' files.

use std::path::Path;

use crate::client_files::ClientFile;

use super::OF_FURTHER_FILES;
use crate::option::{Options as _, Reader};
use crate::report::mask::Masked;
use crate::report::problem::{ConfigErrors, Finding, Findings, Problem};
use crate::syntax::{Entry, Node, Source, Syntax};
use crate::{Config, MAX_FILE_SIZE, syntax, units};

use crate::variables::Variables;

/// A file that was read as a tree.
pub(super) struct Tree {
    pub(super) source: Source,
    pub(super) root: Option<Node>,
    /// The original notation of a client's file.
    pub(super) client: Option<ClientFile>,
    /// Whether unknown keys are errors.
    pub(super) is_own: bool,
    pub(super) masked: Masked,
    pub(super) findings: Findings,
}

impl Tree {
    pub(super) fn new(text: &str, origin: &Path) -> Result<Self, ConfigErrors> {
        if text.len() > MAX_FILE_SIZE {
            let message = format!(
                "the file is larger than {}",
                units::format_size(MAX_FILE_SIZE)
            );
            return Err(ConfigErrors::from_file(
                origin,
                message,
                "is this the right file?",
            ));
        }
        let source = Source::new(text);
        let syntax = Syntax::detect(origin, source.text());
        let mut findings = Findings::default();
        let written = syntax::parse(&source, syntax, &mut findings);
        let client = written
            .as_ref()
            .and_then(|root| ClientFile::read(origin, root))
            .filter(|file| !file.title.is_empty() || !has_options(&file.root));
        for note in client.iter().flat_map(|file| &file.notes) {
            findings.push(Finding::warning(note.span, note.message.clone()).help(note.help));
        }
        let root = client
            .as_ref()
            .map(|file| file.root.clone())
            .or_else(|| written.clone());
        let masked = Masked::find(
            root.as_ref(),
            written.as_ref().filter(|_| client.is_some()),
            Config::SECTION,
            &source,
            syntax,
        );
        Ok(Self {
            source,
            root,
            is_own: client.is_none(),
            // Nothing else is known about an `mcp.json` of no known program.
            client: client.filter(|file| !file.title.is_empty()),
            masked,
            findings,
        })
    }
}

impl Tree {
    /// Reads the file's options with `read`, unless the file is empty. The value is complete only
    /// without errors.
    pub(super) fn read<T: Default>(
        &mut self,
        origin: &Path,
        variables: &Variables<'_>,
        is_lenient: bool,
        read: impl FnOnce(&mut Reader<'_>, &Node) -> T,
    ) -> (T, Result<Vec<Problem>, ConfigErrors>) {
        let findings = std::mem::take(&mut self.findings);
        let mut reader = Reader {
            is_own: self.is_own,
            is_lenient,
            ..Reader::new(Config::SECTION, &self.source, variables, findings)
        };
        let value = self.root.as_ref().map(|root| read(&mut reader, root));
        let findings = reader.findings;
        (
            value.unwrap_or_default(),
            findings.conclude(origin, &self.source, &self.masked),
        )
    }
}

/// Whether the file has options of Fanlight beside its servers, so that it is Fanlight's own.
fn has_options(root: &Node) -> bool {
    let is_option = |entry: &Entry| {
        Config::SECTION.find(&entry.key).is_some() && !OF_FURTHER_FILES.contains(&&*entry.key)
    };
    root.entries().iter().any(is_option)
}
