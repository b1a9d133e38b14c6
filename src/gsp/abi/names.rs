//! Names of RPC functions and of controls, for logs and traces: numbers say nothing to a reader.
//!
//! `functions.txt` has the functions of r570 in order of their numbers, which are the same in all versions;
//! `controls.txt` those controls of r570 that drivers send about engines, memory, channels and interrupts, by
//! number. A version that has other controls by some of these numbers lists them ([`Abi::renamed`]).

use super::Abi;

/// Name of an RPC function.
pub fn function(number: u32) -> Option<&'static str> {
    include_str!("functions.txt").lines().nth(usize::try_from(number).ok()?)
}

/// Name of a control in a version.
pub fn control(abi: &Abi, number: u32) -> Option<&'static str> {
    let known = abi.control(number).map(|control| control.name);
    known.or_else(|| match find(abi.renamed, number) {
        Some(name) => name,
        None => find(include_str!("controls.txt"), number).flatten(),
    })
}

/// What a list says of a number; `Some(None)`: the number, and no name.
fn find(list: &'static str, number: u32) -> Option<Option<&'static str>> {
    list.lines().find_map(|line| {
        let (digits, name) = line.split_once(' ').map_or((line, None), |(digits, name)| (digits, Some(name)));
        (u32::from_str_radix(digits, 16) == Ok(number)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi;
    use crate::abi::common::rpc;

    #[test]
    fn functions_in_use_have_the_names_of_the_list() {
        for (number, name) in [
            (rpc::NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, "ALLOC_MEMORY"),
            (rpc::NV_VGPU_MSG_FUNCTION_FREE, "FREE"),
            (rpc::NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, "UNLOADING_GUEST_DRIVER"),
            (rpc::NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO, "GET_GSP_STATIC_INFO"),
            (rpc::NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE, "UPDATE_BAR_PDE"),
            (rpc::NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD, "CONTINUATION_RECORD"),
            (rpc::NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, "GSP_SET_SYSTEM_INFO"),
            (rpc::NV_VGPU_MSG_FUNCTION_SET_REGISTRY, "SET_REGISTRY"),
            (rpc::NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, "GSP_RM_CONTROL"),
            (rpc::NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, "GSP_RM_ALLOC"),
        ] {
            assert_eq!(function(number), Some(name));
        }
        assert_eq!(function(0x1001), None);
    }

    #[test]
    fn every_control_of_the_list_has_its_name_in_the_version_of_the_list() {
        let abi = abi::usual();
        for line in include_str!("controls.txt").lines() {
            let (digits, name) = line.split_once(' ').unwrap();
            assert_eq!(control(abi, u32::from_str_radix(digits, 16).unwrap()), Some(name));
        }
        assert_eq!(control(abi, 0xdead_beef), None);
    }

    #[test]
    fn a_number_that_means_two_things_has_two_names() {
        let named = |version: &str, number| control(abi::by_version(version).unwrap(), number);

        assert_eq!(
            named("570.144", 0x2080_0ac3),
            Some("NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING")
        );
        assert_eq!(named("535.113.01", 0x2080_0ac3), Some("NV2080_CTRL_CMD_INTERNAL_FBSR_SEND_REGION_INFO"));
        assert_eq!(named("570.144", 0x2080_01b0), Some("NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO"));
        assert_eq!(named("535.113.01", 0x2080_01b0), None, "it has none by that number");
    }

    #[test]
    fn control_names_are_sorted_and_distinct() {
        let lists = abi::VERSIONS.iter().map(|abi| abi.renamed).chain([include_str!("controls.txt")]);
        for list in lists {
            let numbers: Vec<_> = list.lines().map(|line| &line[..8]).collect();
            assert!(numbers.is_sorted_by(|one, next| one < next));
        }
    }
}
