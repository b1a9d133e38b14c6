//! `gpuvmk jail`: what each kind of thread may do, as a list for people and programs.

use std::collections::BTreeSet;
use std::process::ExitCode;

use serde_json::json;

use crate::jail::{Role, Rule};

/// Arguments of `gpuvmk jail`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk jail --role session")]
pub(super) struct Args {
    /// Only this role.
    #[arg(long, value_name = "NAME", value_parser = role)]
    role: Option<Role>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn role(name: &str) -> Result<Role, String> {
    let names = Role::ALL.map(Role::name).join(", ");
    Role::of_name(name).ok_or_else(|| format!("there are {names}"))
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let roles = Role::ALL.into_iter().filter(|role| args.role.is_none_or(|wanted| wanted == *role));
    if args.json {
        let roles: Vec<_> = roles.map(as_json).collect();
        say!("{}", json!({ "roles": roles }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for role in roles {
        let calls: BTreeSet<_> = role.rules().map(Rule::name).collect();
        say!("{role}: {} system calls", calls.len())?;
        for rule in role.rules() {
            say!("  {:18} {}{}", rule.name(), conditions(rule), rule.why)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn conditions(rule: &Rule) -> String {
    let all: Vec<_> = rule.when.iter().map(ToString::to_string).collect();
    if all.is_empty() { String::new() } else { format!("[{}] ", all.join(", ")) }
}

fn as_json(role: Role) -> serde_json::Value {
    let rules: Vec<_> = role
        .rules()
        .map(|rule| {
            let when: Vec<_> = rule
                .when
                .iter()
                .map(|condition| {
                    let (mask, value) = condition.test.mask_and_value();
                    json!({ "argument": condition.argument, "mask": mask, "value": value,
                            "text": condition.to_string() })
                })
                .collect();
            json!({ "call": rule.name(), "number": rule.number, "when": when, "why": rule.why, "rare": rule.rare })
        })
        .collect();
    let starts: Vec<_> = role.starts().iter().map(|role| role.name()).collect();
    json!({ "role": role.name(), "thread": role.thread(), "starts": starts, "rules": rules })
}
