//! `fanlight diff`: compares the bytes of a call's result from the server and through the gateway.
//!
//! The call is made twice: directly to the server, and over HTTP through a gateway started on
//! loopback. The client uses the server's era, so that the gateway has nothing to translate.

use std::sync::Arc;

use fanlight_canonical::{Call, Endpoint, ServerMessages, Unresolved};
use fanlight_cli::cli::CallArgs;
use fanlight_cli::difference;
use fanlight_cli::failure::Failure;
use fanlight_cli::out::{self, say};
use fanlight_cli::show;
use fanlight_config::Config;
use fanlight_frontend::{FrontendSettings, serve_http};
use fanlight_gateway::catalogue::{Entry, ListView};
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use fanlight_protocol::param_header::MAX_MIRRORED;
use fanlight_protocol::param_header::{self, ParamHeader};
use fanlight_protocol::{Era, Json, Response};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::client::{Client, other};
use super::{arguments, looked_through, no_such_tool, tool_call, tools, with_assembly};
use crate::assembly::Assembly;
use crate::auth;
use crate::endpoints::find_named;
use crate::wiring::frontend_settings;

/// Prints the configured changes of the tool, and the differences of the two results. Fails if the
/// results differ.
pub(crate) async fn diff(config: &Config, args: &CallArgs) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments)?;
    let config = &looked_through(config, &args.endpoint);
    let (direct, through) = with_assembly(config, async |assembly| {
        both(config, assembly, args, &arguments).await
    })
    .await?;
    let (left, right) = (direct.body(), through.body());
    let values = difference::of_values(&left, &right).lines();
    let bytes = difference::of_bytes(&left, &right);
    let are_equal = values.is_empty() && bytes.is_none() && direct.is_error() == through.is_error();
    let failure = || {
        Failure::other(
            "the results differ (a tool that answers differently each time differs here too)",
        )
    };
    if args.json {
        let mut report = ObjectBuilder::new();
        let mut list = ArrayBuilder::default();
        for line in values.iter().chain(&bytes) {
            list.push(&Json::string(line));
        }
        report.member(
            "identical",
            &Json::literal(if are_equal { "true" } else { "false" }),
        );
        report
            .member("differences", &list.finish())
            .member("direct", &left)
            .member("gateway", &right);
        out::json(report.finish().as_text());
        return if are_equal { Ok(()) } else { Err(failure()) };
    }
    if direct.is_error() != through.is_error() {
        let kind = |response: &Response| {
            if response.is_error() {
                "an error"
            } else {
                "a result"
            }
        };
        say!(
            "{} directly became {} through the gateway",
            kind(&direct),
            kind(&through)
        );
    }
    values.iter().for_each(|line| say!("json:  {line}"));
    if let Some(place) = &bytes {
        say!("bytes: {place}");
    }
    if are_equal {
        say!(
            "no difference: {} bytes, identical directly and through the gateway",
            left.bytes().len()
        );
        return Ok(());
    }
    say!(
        "\ndirect:\n{}\n\nthrough the gateway:\n{}",
        show::indented(&left),
        show::indented(&right)
    );
    Err(failure())
}

/// Prints the configured differences between the tool and its server's definition.
fn say_intended(snapshot: &ListView, tool: &Entry) {
    let Some(given) = snapshot.given(tool) else {
        return;
    };
    let differences = difference::of_values(&given, &tool.visible).lines();
    differences
        .iter()
        .for_each(|line| say!("intended: tool {line}"));
    let arguments = tool
        .changes()
        .into_iter()
        .filter(|change| change.contains("argument"));
    arguments.for_each(|change| say!("intended: the tool {}", show::plain(&change, 300)));
}

/// The parameters of a tool that its calls repeat in headers.
fn mirrored(tool: &Json) -> Vec<ParamHeader> {
    let schema = tool.get("inputSchema");
    schema
        .and_then(|schema| param_header::annotations(&schema, MAX_MIRRORED).ok())
        .unwrap_or_default()
}

async fn both(
    config: &Config,
    assembly: &Assembly,
    args: &CallArgs,
    arguments: &Json,
) -> Result<(Response, Response), Failure> {
    let endpoint = find_named(&args.endpoint, &assembly.gateway)?;
    let snapshot = tools(assembly, &endpoint).await;
    let tool = snapshot
        .find(&args.tool)
        .ok_or_else(|| no_such_tool(&args.tool, &snapshot))?;
    let backend = assembly
        .servers
        .backends()
        .find(|(id, _)| *id == tool.backend);
    let (Some((_, backend)), Some(original)) = (backend, &tool.original) else {
        return Err(Failure::other("no server has this tool"));
    };
    if !args.json {
        say_intended(&snapshot, tool);
    }
    let Unresolved {
        method,
        params,
        context,
    } = tool_call(original, arguments, Endpoint::Everything);
    // The server gets the same arguments as from the gateway: the results are compared, not the
    // requests.
    let params = params
        .as_ref()
        .map(|params| tool.rewrite_call(params))
        .transpose();
    let params = params.map_err(|error| Failure::usage(error.message))?;
    let direct = backend
        .request(Call {
            method,
            params,
            context,
            messages: ServerMessages::discard(),
        })
        .await;
    let direct =
        direct.map_err(|error| Failure::other(format!("server {:?} {error}", backend.name())))?;

    let era = backend.status().era.unwrap_or(Era::Modern);
    let end = CancellationToken::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(other)?;
    let path = args.endpoint.path().unwrap_or(&config.path);
    let url = format!("http://{}{path}", listener.local_addr().map_err(other)?);
    let (key, authenticate) = auth::for_one_client()?;
    let settings = frontend_settings(
        config,
        &fanlight_telemetry::Telemetry::off(),
        &CancellationToken::new(),
    );
    let settings = Arc::new(FrontendSettings {
        authenticate,
        ..settings
    });
    let front = tokio::spawn(serve_http(
        listener,
        Arc::clone(&assembly.gateway),
        settings,
        end.clone(),
    ));
    let client = Client::new(url, config.timeouts.call)?.with_token(key);
    let through = match era {
        Era::Legacy => client.call_legacy(&args.tool, arguments).await,
        Era::Modern => {
            client
                .call_modern(&args.tool, &mirrored(&tool.visible), arguments, None)
                .await
        }
    };
    end.cancel();
    front.await.map_err(other)?.map_err(other)?;
    Ok((direct, through?))
}
