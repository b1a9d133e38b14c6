//! Positions of BAR3 and PRAMIN, for a guest whose instance memory is mapped for good.

use std::io::{self, ErrorKind};

use super::Mediator;
use crate::control::ChannelControl;
use crate::placement::PagePlacement;
use gpuvmk_backend::{WindowTables, Windows};
use gpuvmk_pci::SharedMemory;

impl<C: ChannelControl> Mediator<C> {
    fn placement(&self) -> io::Result<&PagePlacement> {
        self.placement.as_ref().ok_or_else(|| ErrorKind::Unsupported.into())
    }
}

impl<C: ChannelControl> Windows for Mediator<C> {
    fn bar3_memory(&self) -> io::Result<SharedMemory> {
        self.placement()?.share_bar3()
    }

    fn pramin_memory(&self) -> io::Result<SharedMemory> {
        self.placement()?.share_pramin()
    }

    fn show_bar3(&self, tables: Option<WindowTables>) {
        if self.placement.is_some() {
            self.serve(|control, host| control.show_bar3(tables, host));
        }
    }

    fn show_pramin(&self, start: Option<u64>) {
        if self.placement.is_some() {
            self.serve(|control, host| control.show_pramin(start, host));
        }
    }

    fn settle(&self) {
        if let Some(placement) = &self.placement {
            placement.settle();
        }
    }

    fn client_gone(&self) {
        if let Some(placement) = &self.placement {
            placement.client_gone();
        }
    }
}
