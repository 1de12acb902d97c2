//! Where the record of who called what is, and opening it.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use fanlight_audit::{ArgumentsKept, AuditLog, KeptRecord};
use fanlight_config::{ArgumentsChoice, Config};
use fanlight_ledger::{Entry, Ledger, LedgerFiles, LedgerSettings};
use tracing::{info, warn};

use crate::failure::Failure;

/// The folder of the record where the configuration names none.
const FOLDER: &str = "audit";
/// Bytes of one file.
const FILE: u64 = 8 << 20;
/// Processes with the same configuration that each have a record of their own.
const PROCESSES: usize = 16;

/// The record as the configuration wants it: in the log, and in files. Each line names this replica, if it is one of several.
pub(crate) fn open(config: &Config, replica: Option<&str>) -> Result<Arc<AuditLog>, Failure> {
    let options = &config.audit;
    let ledger = match ledger(config, replica) {
        Ok(ledger) => ledger,
        Err(problem) if options.file.is_some() || options.required => return Err(Failure::other(problem)),
        Err(problem) if config.state_dir.is_some() => {
            warn!("{problem}; who calls what is not recorded");
            None
        }
        // Nobody has asked for it, and where nothing can be written that is as expected.
        Err(problem) => {
            info!("{problem}; who calls what is not recorded");
            None
        }
    };
    if options.required && ledger.is_none() {
        let help = "`audit.required` needs a place for the record: set `audit.file` or `stateDir`";
        return Err(Failure::usage(help));
    }
    let kept = ledger.map(|ledger| {
        ledger.add(Entry { event: "start", outcome: "ok", ..Entry::default() });
        KeptRecord {
            ledger: Arc::new(ledger),
            is_required: options.required,
            arguments: match options.arguments {
                ArgumentsChoice::None => ArgumentsKept::None,
                ArgumentsChoice::Digest => ArgumentsKept::Digest,
                ArgumentsChoice::Full => ArgumentsKept::Full,
            },
            redact: options.redact.clone(),
            default_path: config.path.clone(),
        }
    });
    Ok(Arc::new(AuditLog::keeping(kept)))
}

/// Writes what waits, and ends.
pub(crate) async fn end(log: &Arc<AuditLog>) {
    let log = Arc::clone(log);
    let ended = tokio::task::spawn_blocking(move || {
        if let Some(kept) = log.kept() {
            kept.ledger.add(Entry { event: "stop", outcome: "ok", ..Entry::default() });
            kept.ledger.end();
        }
    });
    // One that has failed has nothing more to write.
    let _ = ended.await;
}

/// Where the records of a configuration are: its own file, or those in the folder of its state.
pub(crate) fn files(config: &Config) -> Vec<LedgerFiles> {
    match (&config.audit.file, folder(config)) {
        (Some(file), _) => LedgerFiles::at(&PathBuf::from(file)).into_iter().collect(),
        (None, Some(folder)) => LedgerFiles::in_folder(&folder),
        (None, None) => Vec::new(),
    }
}

fn folder(config: &Config) -> Option<PathBuf> {
    let state = config.state_dir.as_ref().map(PathBuf::from).or_else(|| config.user_state.clone());
    Some(state?.join(FOLDER))
}

fn ledger(config: &Config, replica: Option<&str>) -> Result<Option<Ledger>, String> {
    let options = &config.audit;
    if !options.keep {
        return Ok(None);
    }
    let kept_bytes = u64::try_from(options.size).unwrap_or(u64::MAX);
    let settings = |files| LedgerSettings {
        files,
        file_bytes: FILE.min(kept_bytes / 4),
        kept_bytes,
        kept_for: options.keep_for,
        replica: replica.map(str::to_owned),
    };
    let failed = |files: &LedgerFiles, error: &std::io::Error| {
        format!("the audit record {} cannot be used: {error}", files.current().display())
    };
    if let Some(file) = &options.file {
        let files = LedgerFiles::at(&PathBuf::from(file)).ok_or("`audit.file` names no file")?;
        return Ledger::open(settings(files.clone())).map(Some).map_err(|error| failed(&files, &error));
    }
    let Some(folder) = folder(config) else {
        info!("who calls what is not recorded: there is no `stateDir`, and no state folder of the user");
        return Ok(None);
    };
    let mut problem = String::new();
    for process in 1..=PROCESSES {
        let name = if process == 1 { "audit.jsonl".to_owned() } else { format!("audit-{process}.jsonl") };
        let Some(files) = LedgerFiles::at(&folder.join(name)) else { continue };
        match Ledger::open(settings(files.clone())) {
            Ok(ledger) => return Ok(Some(ledger)),
            // Another process with this configuration has it.
            Err(error) if error.kind() == ErrorKind::WouldBlock => problem = failed(&files, &error),
            Err(error) => return Err(failed(&files, &error)),
        }
    }
    Err(problem)
}
