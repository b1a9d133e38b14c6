//! What the data itself must be.

use super::*;

#[test]
fn threads_that_are_started_need_nothing_that_their_starter_lacks() {
    for role in Role::ALL {
        for started in role.starts() {
            for rule in started.rules() {
                let held = role
                    .rules()
                    .any(|own| own.number == rule.number && (own.when.is_empty() || own.when == rule.when));
                assert!(held, "{role} starts {started}, which needs {} {:?}", rule.name(), rule.when);
            }
        }
    }
}
