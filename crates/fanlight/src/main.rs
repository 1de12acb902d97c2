//! The `fanlight` binary: reads the command line and the configuration, and connects the crates
//! (docs/architecture.md).

mod admin;
mod assembly;
mod auth;
mod content;
mod files;
mod listening;
mod mock;
mod protection;
mod reload;
mod serve;
mod servers;
mod service_manager;
mod short_lived;
mod standard_io;
mod wiring;

use std::process::ExitCode;
use std::time::Duration;

use fanlight_cli::cli::{
    CallCommand, Cli, Command, EndpointArgs, LeanCommand, ListTarget, LoginArgs, LogoutArgs,
    RunCommand,
};
use fanlight_cli::inspect::Checked;
use fanlight_cli::log::Log;
use fanlight_cli::login::{self, Browser};
use fanlight_cli::observe::Admin;
use fanlight_cli::{
    Failure, Result, add, audit_command, complain, configuration, connect, demo, import, inspect,
    judge_command, keys, lean_command, log, manual, observe, pin_command, policy_command, say,
    witness,
};
use fanlight_telemetry::Telemetry;

use short_lived::with_assembly;

/// Returns memory to the system soon after a peak; the C library's allocator keeps it
/// (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(end) = wiring::run() {
        return end;
    }
    let mut cli = Cli::read();
    cli.take_file();
    cli.common.demo |= matches!(cli.command, Some(Command::Demo(_)));
    let serves = matches!(
        cli.command,
        None | Some(Command::Run(_) | Command::Stdio(_) | Command::Demo(_))
    );
    let (log, outcome) = match log::start(&cli.common, serves) {
        Ok(mut log) => {
            wiring::hide();
            let outcome = run(cli, &mut log);
            (log, outcome)
        }
        Err(failure) => (Log::Direct, Err(failure)),
    };
    log.end(outcome.as_ref().err());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit_code(),
    }
}

fn run(cli: Cli, log: &mut Log) -> Result {
    #[cfg(debug_assertions)]
    fanlight_fair::check_limits().map_err(Failure::usage)?;
    let common = &cli.common;
    match &cli.command {
        Some(Command::DemoServer { era }) => return demo::serve(*era),
        Some(Command::Schema) => {
            say!("{}", fanlight_config::schema().trim_end());
            return Ok(());
        }
        Some(Command::Completions { shell }) => return manual::completions(*shell),
        Some(Command::Man { out }) => return manual::pages(out.as_deref()),
        Some(Command::Add(args)) => return add::add(args, common),
        Some(Command::Connect(args)) => return connect::connect(args, common),
        Some(Command::Import(args)) => return import::import(args),
        Some(Command::Keys { command }) => return keys::keys(command, common),
        Some(Command::Mock(args)) => return in_runtime(mock::mock(args)),
        Some(Command::Witness(args)) => return in_runtime(witness::witness(args)),
        Some(Command::WitnessServer { era, second }) => {
            return in_runtime(async {
                let (input, output) = (standard_io::input(), standard_io::output());
                witness::serve(*era, *second, input, output).await
            });
        }
        Some(Command::Audit { command }) => return audit_command::command(command, common),
        Some(Command::Pin(args)) => {
            return in_runtime(pin_command::command(args, common, async |config| {
                with_assembly(config, async |assembly| {
                    Ok(pin_command::definitions(&assembly.gateway).await)
                })
                .await
            }));
        }
        Some(Command::Policy { command }) => {
            return in_runtime(policy_command::command(command, common));
        }
        Some(Command::Approvals(args)) => return in_runtime(observe::approvals(args, common)),
        Some(Command::Status(args)) => return in_runtime(observe::status(args, common)),
        Some(Command::Logs(args)) => return in_runtime(observe::logs(args, common)),
        Some(Command::Record(args)) => {
            return in_runtime(fanlight_cli::recording::record(args, common));
        }
        Some(Command::Traces(args)) => return in_runtime(observe::traces(args, common)),
        Some(Command::Check(args)) => {
            if let Some(target) = judge_command::target(args)? {
                return in_runtime(judge_command::judge_one(&target, args));
            }
        }
        // A running gateway can answer these, without starting servers.
        Some(Command::List {
            what,
            json,
            endpoint,
            url: Some(url),
            no_browser,
            ..
        }) => {
            let wanted = wanted_lists(what, *json, endpoint);
            return in_runtime(inspect::list_at(
                url,
                &wanted,
                Browser::from_terminal(*no_browser),
            ));
        }
        Some(Command::Call(CallCommand {
            call,
            url: Some(url),
            no_browser,
            ..
        })) => {
            return in_runtime(inspect::call_at(
                url,
                call,
                Browser::from_terminal(*no_browser),
            ));
        }
        Some(Command::Login(LoginArgs {
            server: Some(url),
            no_browser,
        })) if login::is_url(url) => {
            return in_runtime(login::login_at(url, Browser::from_flag(*no_browser)));
        }
        Some(Command::Logout(LogoutArgs { server: Some(url) })) if login::is_url(url) => {
            return in_runtime(login::logout_at(url));
        }
        Some(Command::List {
            what,
            json,
            endpoint,
            admin,
            ..
        }) => {
            let ran = in_runtime(async {
                let Some(admin) = Admin::for_command(admin, common).await? else {
                    return Ok(false);
                };
                inspect::list_of_running(&admin, &wanted_lists(what, *json, endpoint))
                    .await
                    .map(|()| true)
            })?;
            if ran {
                return Ok(());
            }
        }
        Some(Command::Lean {
            command: LeanCommand::Suggest(args),
        }) if in_runtime(lean_command::suggest_for_running(args, common))? => {
            return Ok(());
        }
        Some(Command::Call(args)) => {
            let ran = in_runtime(async {
                let Some(admin) = Admin::for_command(&args.admin, common).await? else {
                    return Ok(false);
                };
                inspect::call_running(&admin, &args.call)
                    .await
                    .map(|()| true)
            })?;
            if ran {
                return Ok(());
            }
        }
        Some(Command::Replay(args)) if args.server.is_none() => {
            return in_runtime(short_lived::replay(None, args));
        }
        Some(Command::Validate(args)) => return inspect::validate(args, common),
        Some(Command::Reload(args)) => return in_runtime(observe::reload(args, common)),
        Some(Command::Enable(args)) => {
            return in_runtime(observe::change_server(args, common, "enable"));
        }
        Some(Command::Disable(args)) => {
            return in_runtime(observe::change_server(args, common, "disable"));
        }
        Some(Command::EndSession(args)) => return in_runtime(observe::end_session(args, common)),
        Some(Command::Restart(args)) => {
            return in_runtime(observe::change_server(args, common, "restart"));
        }
        _ => {}
    }
    // The others only look up what users have granted.
    let starts_servers = !matches!(
        cli.command,
        Some(Command::Logout(_) | Command::Connections(_) | Command::State { .. })
    );
    let loaded = configuration::load(common, starts_servers)?;
    if demo::is_demo(&loaded) && !common.demo && matches!(log, Log::Direct) {
        complain(&format!("DEMO: {}\n", demo::NOTICE));
    }
    if matches!(cli.command, Some(Command::List { .. } | Command::Call(_)))
        && !demo::is_demo(&loaded)
    {
        complain(
            "no running gateway with this configuration found: starting its servers for this command …\n",
        );
    }
    in_runtime(async {
        match cli.command {
            None => serve::http(loaded, &cli.run, &cli.common, log).await,
            Some(Command::Run(RunCommand { run: args, .. }) | Command::Demo(args)) => {
                serve::http(loaded, &args, &cli.common, log).await
            }
            Some(Command::Stdio(args)) => serve::stdio(loaded, &args, &cli.common, log).await,
            Some(Command::Check(args)) => {
                if !args.json {
                    inspect::introduce(&loaded);
                }
                let telemetry = Telemetry::off();
                let checked = short_lived::observed(&loaded.config, &telemetry, async |assembly| {
                    let (gateway, servers) = (&assembly.gateway, &assembly.servers);
                    Ok(
                        Checked::inspect(gateway, servers.backends(), servers.users(), &loaded)
                            .await,
                    )
                });
                checked.await?.report(&loaded, args.json).await
            }
            Some(Command::List {
                what,
                json,
                endpoint,
                ..
            }) => {
                with_assembly(&loaded.config, async |assembly| {
                    inspect::list(&assembly.gateway, &wanted_lists(&what, json, &endpoint)).await
                })
                .await
            }
            Some(Command::Lean {
                command: LeanCommand::Suggest(args),
            }) => {
                with_assembly(&loaded.config, async |assembly| {
                    lean_command::suggest(&assembly.gateway, &args, &cli.common).await
                })
                .await
            }
            Some(Command::Find(args)) => {
                with_assembly(&loaded.config, async |assembly| {
                    inspect::find(&assembly.gateway, &args).await
                })
                .await
            }
            Some(Command::Call(args)) => {
                with_assembly(&loaded.config, async |assembly| {
                    inspect::call(&assembly.gateway, &args.call).await
                })
                .await
            }
            Some(Command::Login(args)) => login::login(&loaded.config, &args).await,
            Some(Command::Logout(args)) => {
                login::logout(&loaded.config, args.server.as_deref()).await
            }
            Some(Command::Connections(args)) => login::connections(&loaded.config, args.json).await,
            Some(Command::State { command }) => login::state(&loaded.config, &command).await,
            Some(Command::Diff(args)) => short_lived::diff(&loaded.config, &args).await,
            Some(Command::Replay(args)) => short_lived::replay(Some(&loaded.config), &args).await,
            Some(Command::TraceTest(args)) => match &args.url {
                Some(url) => inspect::trace_test_at(url, &loaded.config, &args, &cli.common).await,
                None => short_lived::trace_test(&loaded.config, &args).await,
            },
            // The other commands need no configuration.
            Some(_) => Ok(()),
        }
    })
}

/// The lists that `list` should show.
fn wanted_lists<'a>(
    targets: &[ListTarget],
    json: bool,
    endpoint: &'a EndpointArgs,
) -> inspect::Wanted<'a> {
    let what = targets.iter().find_map(|target| match target {
        ListTarget::Kind(kind) => Some(*kind),
        ListTarget::File(_) => None,
    });
    inspect::Wanted {
        what,
        json,
        endpoint,
    }
}

fn in_runtime<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    // A single thread; `fanlight run` starts further worker threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(work);
    // A blocked read of standard input must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}
