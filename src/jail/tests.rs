//! What the data itself must be.

use super::*;

/// True when whatever meets `narrow` meets `wide` too.
fn follows(narrow: &Condition, wide: &Condition) -> bool {
    let ((mask, value), (wide_mask, wide_value)) = (narrow.test.mask_and_value(), wide.test.mask_and_value());
    narrow.argument == wide.argument && mask & wide_mask == wide_mask && value & wide_mask == wide_value
}

#[test]
fn threads_that_are_started_need_nothing_that_their_starter_lacks() {
    for role in Role::ALL {
        for started in role.starts() {
            for rule in started.rules() {
                let held = role.rules().any(|own| {
                    own.number == rule.number
                        && own.when.iter().all(|wide| rule.when.iter().any(|narrow| follows(narrow, wide)))
                });
                assert!(held, "{role} starts {started}, which needs {} {:?}", rule.name(), rule.when);
            }
        }
    }
}

#[test]
fn jail_does_not_close_behind_threads_that_run_already() {
    let allowed =
        Allowance { paths: Vec::new(), descriptors: None, memory: None, drives: Drives::Nothing, beside: 0 };

    // The harness has a thread beside this one.
    let error = confine(Mode::Enforce, &allowed).unwrap_err();

    assert!(matches!(error, JailError::Late { others: 1.., allowed: 0 }), "{error}");
}
