//! Names of RPC functions and of controls, for logs and traces: numbers say nothing to a reader.
//!
//! `functions.txt` has the functions of r570 in order of their numbers; `controls.txt` those controls of r570 that
//! drivers send about engines, memory, channels and interrupts, by number.

/// Name of an RPC function.
pub fn function(number: u32) -> Option<&'static str> {
    include_str!("functions.txt").lines().nth(usize::try_from(number).ok()?)
}

/// Name of a control.
pub fn control(number: u32) -> Option<&'static str> {
    include_str!("controls.txt").lines().find_map(|line| {
        let (digits, name) = line.split_once(' ')?;
        (u32::from_str_radix(digits, 16) == Ok(number)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::gh100::gsp::r570_144::{control as numbers, rpc};

    #[test]
    fn functions_in_use_have_the_names_of_the_list() {
        assert_eq!(function(rpc::NV_VGPU_MSG_FUNCTION_FREE), Some("FREE"));
        assert_eq!(function(rpc::NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL), Some("GSP_RM_CONTROL"));
        assert_eq!(function(rpc::NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC), Some("GSP_RM_ALLOC"));
        assert_eq!(function(0x1001), None);
    }

    #[test]
    fn controls_are_found_by_number_and_unknown_ones_are_not() {
        assert_eq!(
            control(numbers::NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE),
            Some("NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE")
        );
        assert_eq!(control(0xdead_beef), None);
    }

    #[test]
    fn control_names_are_sorted_and_distinct() {
        let numbers: Vec<_> = include_str!("controls.txt").lines().map(|line| &line[..8]).collect();

        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
