//! New programs are held against the runs of a server, as against those of a store.

use tidemill_testkit::certificate::Authority;

use super::UNKNOWN;
use super::pair::Pair;
use crate::mill::{Mill, feed, stop};
use crate::{program, workflows};

/// A program that works for either is held against the runs under way, and against one.
pub fn both(pair: &mut Pair) {
    let [same, renamed, none] = ["same", "renamed", "none"].map(program::command);
    for (program, code) in [(&same, 0), (&renamed, 1), (&none, 0)] {
        pair.run(&["workflows", "replay", "--with", program]).code(code);
        pair.run(&["workflows", "replay", "{run}", "--with", program]).code(code);
        pair.run(&["workflows", "replay", "--kind", "nobody", "--with", program]).code(0);
    }
    for (program, code) in [(&same, 0), (&renamed, 1), (&none, 3)] {
        pair.run(&["workflows", "diff", "{run}", "--with", program]).code(code);
    }
    pair.run(&["workflows", "replay", "{later}", "--with", &same]).code(3);
    pair.run(&["workflows", "replay", UNKNOWN, "--with", &same]).code(3);
    pair.run(&["workflows", "diff", UNKNOWN, "--with", &same]).code(3);
}

/// A server that asks for tokens and has a certificate of its own: a program gets what it needs to reach it, and no
/// store.
fn replay_on_a_closed_server(make: fn() -> Mill) {
    let (mill, other) = (make(), make());
    let id = workflows::begin(&mill);
    let authority = Authority::new().unwrap();
    let signed = authority.sign("127.0.0.1").unwrap();
    let names = ["server.crt", "server.key", "ca.crt", "token"];
    let [certificate, key, ca, token] = names.map(|name| mill.file(name));
    let secret = mill.run(&["token", "create", "looks", "--role", "viewer"]).ok().stdout;
    let written = [signed.certificate, signed.key, authority.certificate.clone(), secret];
    for (file, text) in [&certificate, &key, &ca, &token].into_iter().zip(written) {
        std::fs::write(file, text).unwrap();
    }
    let files = ["--tls-cert", &certificate, "--tls-key", &key, "--require-token"];
    let (server, url) = mill.serve(&files);
    let place = ["--server", &url, "--ca-file", "ca.crt"];
    // A store of the environment is not the one that is meant, nor is a secret of the environment.
    let ask = |args: &[&str], own: &str| {
        let mut command = mill.command(&[&place, args].concat());
        command.env("TIDEMILL_STORE", other.url()).env(program::OWN_STORE, own);
        command.env("TIDEMILL_TOKEN", "tdm_nonsense");
        feed(command, "")
    };
    let known = |args: &[&str], own: &str| ask(&[args, &["--token-file", "token"]].concat(), own);
    let replay =
        |code: &str| known(&["workflows", "replay", "--with", &program::command(code)], "");
    replay("same").ok().says("1 run follows");
    replay("renamed").code(1).says(&id).says("0 runs follow; 1 run does not");
    let away = format!("cd / && {}", program::command("same"));
    known(&["workflows", "replay", "--with", &away], "").ok().says("1 run follows");
    replay("silent").code(1).says("replay_silent").says("TIDEMILL_SERVER");
    replay("store").code(1).says("TIDEMILL_STORE is not set").says("replay_silent").says("--store");
    let same = program::command("same");
    ask(&["workflows", "replay", "--with", &same], "").code(4).says("credential_refused");
    workflows::looks_elsewhere(&other, &id, known);
    stop(server);
}

#[test]
fn a_program_is_held_against_the_runs_of_a_server_over_sqlite() {
    replay_on_a_closed_server(Mill::sqlite);
}

#[test]
fn a_program_is_held_against_the_runs_of_a_server_over_postgres() {
    replay_on_a_closed_server(Mill::postgres);
}
