//! `fanlight witness`: stands on both sides of any gateway, with a perfect server behind it and a
//! perfect client in front, and reports what does not arrive as sent.
//!
//! `cases` is the one list of exchanges and of judged parts. `server` answers by it through the
//! mock's transports, `client` asks by it, `gateway` starts the gateway between them, `examination`
//! compares, and `report` tells the outcomes.

mod cases;
mod client;
mod comparison;
mod examination;
mod gateway;
mod report;
mod server;

use std::sync::Arc;

use fanlight_protocol::Era;
use tokio::io::{AsyncRead, AsyncWrite};

use self::comparison::Outcome;
use self::examination::examine;
use self::gateway::{Run, Stage};
use self::report::Report;
use self::server::PerfectServer;
use crate::cli::WitnessArgs;
use crate::{Failure, Result, interruptible, mock};

/// Judges the gateway of the command line.
///
/// # Errors
///
/// If something does not arrive as sent, or nothing can be judged.
pub async fn witness(args: &WitnessArgs) -> Result {
    if !Run::all().any(|run| run.is_tried(args)) {
        return Err(Failure::usage(
            "the command has no place for a server: write {url}, {command} or {config} there",
        ));
    }
    let mut report = Report::default();
    for run in Run::all() {
        if run.is_tried(args) {
            // Boxed to keep the future small.
            Box::pin(interruptible(conduct(run, args, &mut report))).await?;
        } else {
            report.skip(run, Outcome::NotTried, None);
        }
    }
    report.finish(args)
}

/// Starts the gateway once, and judges it.
async fn conduct(run: Run, args: &WitnessArgs, report: &mut Report) -> Result {
    let mut stage = Stage::set(run, args)?;
    match stage.client(args.ready).await {
        Ok(client) => {
            let (verdicts, remarks) = examine(run, &stage, client).await;
            report.add(run, verdicts);
            report.remarks.extend(remarks);
        }
        Err(why) => report.skip(run, Outcome::NotOffered, Some(why)),
    }
    stage.end().await;
    Ok(())
}

/// Serves as one of the servers behind a gateway, until the input ends.
///
/// # Errors
///
/// If a stream fails.
pub async fn serve(
    era: Era,
    is_second: bool,
    input: impl AsyncRead + Send + Unpin,
    output: impl AsyncWrite + Send + Unpin,
) -> Result {
    let server = Arc::new(PerfectServer::new(is_second));
    mock::serve_author_on_pipe(server, era, input, output)
        .await
        .map_err(Failure::other)
}
