//! The audit log: its place, and opening it.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use fanlight_config::{ArgumentsChoice, AuditOptions, Config};
use fanlight_otlp::LogExport;
use fanlight_record::ledger::{
    Entry, Ledger, LedgerFiles, LedgerSettings, Mirror, Retention, Written,
};
use fanlight_record::{ArgumentsKept, AuditLog, KeptRecord};
use fanlight_telemetry::Telemetry;
use tracing::{info, warn};

use crate::{Failure, Result, telemetry};

/// The default folder of the audit log.
const FOLDER: &str = "audit";
/// The size of one file in bytes.
const FILE: u64 = 8 << 20;
/// The limit of processes with the same configuration. Each has an audit log of its own.
const PROCESSES: usize = 16;

/// The prefix of the names of events and attributes.
const NAMESPACE: &str = "fanlight.audit";

/// The audit log in force.
#[derive(Clone)]
pub struct Recorder {
    /// The log that events are written to.
    pub log: Arc<AuditLog>,
    /// The export to the collector.
    export: Arc<ArcSwapOption<LogExport>>,
    options: Arc<ArcSwap<AuditOptions>>,
    /// The configuration at the start; only its `audit` section can change at run time.
    started: Arc<Config>,
    telemetry: Telemetry,
    replica: Option<Arc<str>>,
}

/// The audit log of a changed configuration, not yet in force.
pub struct Change {
    config: Config,
    ledger: Option<Arc<Ledger>>,
    /// Whether its place differs from the current one.
    is_elsewhere: bool,
    export: Option<Arc<LogExport>>,
}

/// The collector that gets a copy of each entry.
#[derive(Debug)]
struct Exported(Arc<LogExport>);

impl Mirror for Exported {
    fn line(&self, line: &str) {
        self.0.line(line);
    }

    fn checkpoint(&self, note: &str) {
        self.0.note("checkpoint", note);
    }

    fn counts(&self) -> Written {
        Written {
            written: self.0.exported(),
            lost: self.0.lost(),
        }
    }
}

impl Recorder {
    /// Opens the configured audit log. Each line names this replica, if there are others.
    pub fn open(config: &Config, telemetry: &Telemetry, replica: Option<&str>) -> Result<Self> {
        let export = export(config, telemetry)?;
        let ledger = open_ledger(config, export.as_ref(), replica)?;
        demanded(&config.audit, ledger.is_some())?;
        let log = AuditLog::default();
        log.keep(ledger.map(|ledger| kept_record(config, start_ledger(ledger))));
        Ok(Self {
            log: Arc::new(log),
            export: Arc::new(ArcSwapOption::new(export)),
            options: Arc::new(ArcSwap::from_pointee(config.audit.clone())),
            started: Arc::new(config.clone()),
            telemetry: telemetry.clone(),
            replica: replica.map(Arc::from),
        })
    }

    /// Opens the audit log for another configuration. Nothing changes before [`Self::commit`].
    pub fn prepare(&self, config: &Config) -> Result<Change> {
        let config = Config {
            audit: config.audit.clone(),
            ..Config::clone(&self.started)
        };
        let (before, options) = (self.options.load(), &config.audit);
        let export = match self.export.load_full().filter(|_| options.otlp) {
            Some(export) => Some(export),
            None => export(&config, &self.telemetry)?,
        };
        let is_elsewhere =
            before.file != options.file || before.keep_for.is_some() != options.keep_for.is_some();
        let ledger = match is_elsewhere {
            true => open_ledger(&config, export.as_ref(), self.replica.as_deref())?.map(Arc::new),
            false => self.log.files().map(|kept| Arc::clone(&kept.ledger)),
        };
        demanded(options, ledger.is_some())?;
        Ok(Change {
            config,
            ledger,
            is_elsewhere,
            export,
        })
    }

    /// Puts a change in force. The last delivery to the previous collector may take until `limit`.
    pub async fn commit(&self, change: Change, limit: Duration) {
        let Change {
            config,
            ledger,
            is_elsewhere,
            export,
        } = change;
        let before = self.log.files();
        let next = match (ledger, is_elsewhere) {
            (Some(ledger), true) => Some(start_ledger(ledger)),
            (Some(ledger), false) => {
                ledger.retain(retention(&config.audit));
                ledger.copy_to(mirror(export.as_ref()));
                Some(ledger)
            }
            (None, _) => None,
        };
        self.log
            .keep(next.map(|ledger| kept_record(&config, ledger)));
        self.options.store(Arc::new(config.audit));
        if let Some(before) = before.filter(|_| is_elsewhere) {
            end_ledger(Arc::clone(&before.ledger)).await;
        }
        let has_export = export.is_some();
        if let Some(before) = self.export.swap(export).filter(|_| !has_export) {
            end_export(&before, limit).await;
        }
    }

    /// Writes and delivers pending entries within `limit`, and ends.
    pub async fn end(&self, limit: Duration) {
        if let Some(kept) = self.log.files() {
            end_ledger(Arc::clone(&kept.ledger)).await;
        }
        if let Some(export) = self.export.load_full() {
            end_export(&export, limit).await;
        }
    }
}

/// A ledger whose writing task has started.
fn start_ledger(ledger: impl Into<Arc<Ledger>>) -> Arc<Ledger> {
    let ledger = ledger.into();
    ledger.add(Entry {
        event: "start",
        outcome: "ok",
        ..Entry::default()
    });
    ledger
}

async fn end_ledger(ledger: Arc<Ledger>) {
    let ended = tokio::task::spawn_blocking(move || {
        ledger.add(Entry {
            event: "stop",
            outcome: "ok",
            ..Entry::default()
        });
        ledger.end();
    });
    // A failed task has nothing more to write.
    let _ = ended.await;
}

async fn end_export(export: &LogExport, limit: Duration) {
    if !export.end(limit).await {
        warn!("entries of the audit log were lost: the collector did not accept them in time");
    }
}

/// The audit log stored in a ledger.
fn kept_record(config: &Config, ledger: Arc<Ledger>) -> KeptRecord {
    let options = &config.audit;
    KeptRecord {
        ledger,
        is_required: options.required,
        arguments: match options.arguments {
            ArgumentsChoice::None => ArgumentsKept::None,
            ArgumentsChoice::Digest => ArgumentsKept::Digest,
            ArgumentsChoice::Full => ArgumentsKept::Full,
        },
        redact: options.redact.clone(),
        is_one_of_several: options.file.is_none(),
    }
}

/// Opens the ledger of a configuration; `None` if no audit log is wanted, or if it was not
/// configured and cannot be written.
fn open_ledger(
    config: &Config,
    export: Option<&Arc<LogExport>>,
    replica: Option<&str>,
) -> Result<Option<Ledger>> {
    let options = &config.audit;
    let ledger = match ledger(config, export, replica) {
        Ok(ledger) => ledger,
        Err(problem) if options.file.is_some() || options.required || options.otlp => {
            return Err(Failure::other(problem));
        }
        Err(problem) if config.state_dir.is_some() => {
            warn!("{problem}; there is no audit log");
            None
        }
        // The audit log was not configured, so it is fine if it cannot be written.
        Err(problem) => {
            info!("{problem}; there is no audit log");
            None
        }
    };
    Ok(ledger)
}

/// Checks that there is an audit log if options need one.
fn demanded(options: &AuditOptions, is_kept: bool) -> Result {
    if is_kept || !(options.required || options.otlp) {
        return Ok(());
    }
    let option = if options.required { "required" } else { "otlp" };
    let help = format!(
        "`audit.{option}` needs an audit log: set `audit.file` or `stateDir`, and no `audit.keepFor: off`"
    );
    Err(Failure::usage(help))
}

/// Starts exporting to the collector, if configured.
fn export(config: &Config, telemetry: &Telemetry) -> Result<Option<Arc<LogExport>>> {
    if !config.audit.otlp {
        return Ok(None);
    }
    let Some(target) = telemetry::log_target(config)? else {
        let help = "`audit.otlp` needs a collector: set `telemetry.endpoint` or `OTEL_EXPORTER_OTLP_LOGS_ENDPOINT`";
        return Err(Failure::usage(help));
    };
    let export = LogExport::start(&target, telemetry, NAMESPACE)?;
    info!(endpoint = target.display(), "exporting the audit log");
    Ok(Some(Arc::new(export)))
}

/// The files of a configuration's audit log: the configured file, or those in the state folder.
pub fn files(config: &Config) -> Vec<LedgerFiles> {
    match (&config.audit.file, folder(config)) {
        (Some(file), _) => LedgerFiles::from_path(&PathBuf::from(file))
            .into_iter()
            .collect(),
        (None, Some(folder)) => LedgerFiles::in_folder(&folder),
        (None, None) => Vec::new(),
    }
}

fn folder(config: &Config) -> Option<PathBuf> {
    let state = config
        .state_dir
        .as_ref()
        .map(PathBuf::from)
        .or_else(|| config.user_state.clone());
    Some(state?.join(FOLDER))
}

fn retention(options: &AuditOptions) -> Retention {
    let kept_bytes = options.size as u64;
    Retention {
        file_bytes: FILE.min(kept_bytes / 4),
        kept_bytes,
        kept_for: options.keep_for.unwrap_or_default(),
    }
}

fn mirror(export: Option<&Arc<LogExport>>) -> Option<Arc<dyn Mirror>> {
    export.map(|export| -> Arc<dyn Mirror> { Arc::new(Exported(Arc::clone(export))) })
}

fn ledger(
    config: &Config,
    export: Option<&Arc<LogExport>>,
    replica: Option<&str>,
) -> Result<Option<Ledger>, String> {
    let options = &config.audit;
    if options.keep_for.is_none() {
        return Ok(None);
    }
    let (retention, mirror) = (retention(options), mirror(export));
    let settings = |files| LedgerSettings {
        files,
        retention,
        mirror: mirror.clone(),
        replica: replica.map(str::to_owned),
    };
    let failed = |files: &LedgerFiles, error: &std::io::Error| {
        format!(
            "the audit log {} cannot be used: {error}",
            files.current().display()
        )
    };
    if let Some(file) = &options.file {
        let files =
            LedgerFiles::from_path(&PathBuf::from(file)).ok_or("`audit.file` names no file")?;
        return Ledger::open(settings(files.clone()))
            .map(Some)
            .map_err(|error| failed(&files, &error));
    }
    let Some(folder) = folder(config) else {
        info!("no audit log: `audit.file` or `stateDir` would set its place");
        return Ok(None);
    };
    let mut problem = String::new();
    for process in 1..=PROCESSES {
        let name = if process == 1 {
            "audit.jsonl".to_owned()
        } else {
            format!("audit-{process}.jsonl")
        };
        let Some(files) = LedgerFiles::from_path(&folder.join(name)) else {
            continue;
        };
        match Ledger::open(settings(files.clone())) {
            Ok(ledger) => return Ok(Some(ledger)),
            // Another process with this configuration has the file open.
            Err(error) if error.kind() == ErrorKind::WouldBlock => problem = failed(&files, &error),
            Err(error) => return Err(failed(&files, &error)),
        }
    }
    Err(problem)
}
