//! The scripted server as child processes: each connects to the test and forwards the bytes (see
//! `crate::wire`).

use std::sync::Arc;

use crate::wire::Command;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::channel::{Channel, Output};
use super::reply::End;
use super::{Fault, Received, Reply, Shared, Stream, huge_result, response};

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Tasks of this set serve the children and end with the server.
    let mut children = tokio::task::JoinSet::new();
    while let Ok((control, _)) = listener.accept().await {
        children.spawn(serve_child(control, Arc::clone(&shared)));
    }
}

async fn serve_child(control: TcpStream, shared: Arc<Shared>) {
    let (from_child, to_child) = control.into_split();
    let output = Arc::new(Output::new(to_child));
    let mut lines = BufReader::new(from_child).split(b'\n');
    let Ok(Some(pid)) = lines.next_segment().await else {
        return;
    };
    let pid: u32 = String::from_utf8_lossy(&pid)
        .parse()
        .expect("a process id first");
    shared.children.send_modify(|children| children.push(pid));
    let mut answers = tokio::task::JoinSet::new();
    while let Ok(Some(line)) = lines.next_segment().await {
        let text = String::from_utf8(line).expect("UTF-8 on standard input");
        let request = shared.record(Received::line(text, pid));
        if let Some(reply) = shared.reply(&request) {
            answers.spawn(answer(
                reply,
                request,
                Arc::clone(&output),
                Arc::clone(&shared),
            ));
        }
    }
    shared.ended.send_modify(|ended| ended.push(pid));
    // The input has ended. A stubborn child lives as long as its connection, which this server
    // closes when it is dropped.
    std::future::pending::<()>().await;
}

async fn answer(reply: Reply, request: Arc<Received>, output: Arc<Output>, shared: Arc<Shared>) {
    if !reply.stderr.is_empty() {
        output.send(Command::Stderr, &reply.stderr).await;
    }
    let channel = Channel::Lines(Arc::clone(&output));
    let answers = reply.take_steps(&request, &shared, Some(&channel)).await;
    if let Some(response) = reply.end.response(&request, &answers) {
        shared.record_sent(&response);
        output.line(&response).await;
        if let Some(code) = reply.exit {
            output.send(Command::Exit, &[code]).await;
        }
        return;
    }
    match reply.end {
        End::Driven => shared.opened(Stream::of_lines(request, output, Arc::clone(&shared))),
        End::Acknowledged => {
            let stream = Stream::of_lines(request, output, Arc::clone(&shared));
            stream.acknowledge(stream.filter().expect("a filter")).await;
            shared.opened(stream);
        }
        End::Fault(Fault::Die(code)) => output.send(Command::Exit, &[code]).await,
        End::Fault(Fault::Kill) => output.send(Command::Kill, &[]).await,
        End::Fault(Fault::Garbage(bytes, result)) => {
            output.send(Command::Stdout, &bytes).await;
            output.line(&response(&request, "result", &result)).await;
        }
        End::Fault(Fault::Huge(size)) => {
            output
                .line(&response(&request, "result", &huge_result(size)))
                .await;
        }
        End::Fault(Fault::Hang) => {}
        End::Fault(fault) => panic!("{fault:?} is a fault of HTTP"),
        _ => unreachable!("answered above"),
    }
}
