//! Filters put on threads: the data of a role, compiled and given to the kernel.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use super::error::JailError;
use super::mode::Mode;
use super::role::Role;
use super::rule::Rule;

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;

/// The programs of a role, in the order in which they are installed.
pub(super) fn compile(role: Role, mode: Mode) -> Result<Vec<BpfProgram>, JailError> {
    let otherwise = match mode {
        Mode::Enforce => SeccompAction::Trap,
        Mode::Log | Mode::Off => SeccompAction::Log,
    };
    let mut rules: BTreeMap<i64, Vec<&Rule>> = BTreeMap::new();
    for rule in role.rules() {
        rules.entry(rule.number).or_default().push(rule);
    }
    let mut programs = Vec::new();
    if rules.contains_key(&libc::SYS_clone3) {
        // Its flags lie in memory, where a filter cannot look: it is said not to exist, and `clone` is used.
        let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let absent = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
        programs.push(program(clone3, SeccompAction::Allow, absent)?);
    }
    let conditions = rules
        .into_iter()
        .map(|(number, rules)| Ok((number, alternatives(&rules)?)))
        .collect::<Result<_, JailError>>()?;
    programs.push(program(conditions, otherwise, SeccompAction::Allow)?);
    Ok(programs)
}

/// The ways in which one call is allowed; none stands for all.
fn alternatives(rules: &[&Rule]) -> Result<Vec<SeccompRule>, JailError> {
    if rules.iter().any(|rule| rule.when.is_empty()) {
        return Ok(Vec::new());
    }
    rules
        .iter()
        .map(|rule| {
            let conditions = rule
                .when
                .iter()
                .map(|condition| {
                    let (mask, value) = condition.test.mask_and_value();
                    let operator = SeccompCmpOp::MaskedEq(mask.into());
                    SeccompCondition::new(condition.argument, SeccompCmpArgLen::Dword, operator, value.into())
                })
                .collect::<Result<_, _>>()?;
            SeccompRule::new(conditions)
        })
        .collect::<Result<_, _>>()
        .map_err(|error| JailError::Filter(error.into()))
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    found: SeccompAction,
) -> Result<BpfProgram, JailError> {
    SeccompFilter::new(rules, otherwise, found, ARCH)
        .and_then(TryInto::try_into)
        .map_err(|error| JailError::Filter(error.into()))
}

/// Puts programs on this thread, for good.
pub(super) fn install(programs: &[BpfProgram]) -> Result<(), JailError> {
    programs.iter().try_for_each(|program| seccompiler::apply_filter(program)).map_err(JailError::Filter)
}
