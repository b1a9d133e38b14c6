//! FSP, to which a message is sent that boots GSP.

use anyhow::{Context, Result};

use super::rpc::put;
use crate::attack::card::Card;
use crate::attack::random::Random;
use crate::dma_memory::DmaMemory;
use crate::push::split;

/// Message memory's port, queue pointers, answer's pointers.
const PORT: u32 = 0x8f_2ac0;
const DATA: u32 = 0x8f_2ac4;
const QUEUE_HEAD: u32 = 0x8f_2c00;
const QUEUE_TAIL: u32 = 0x8f_2c04;
const ANSWER_HEAD: u32 = 0x8f_2c80;
const ANSWER_TAIL: u32 = 0x8f_2c84;

/// Bytes of the message that boots GSP, and where in it the parameters' address stands.
const BOOT_MESSAGE: usize = 868;
const BOOT_PARAMETERS: usize = 860;

/// Asks FSP by a message of this version to boot GSP with arguments at a bus address: FSP's error code.
pub fn ask(card: &Card, memory: &mut DmaMemory, version: u32, arguments: u64) -> Result<u32> {
    let parameters = memory.take(0x100, 0x100)?;
    // Targets: coherent system memory for the image, system memory for the arguments.
    memory.store32(parameters, 8, 1);
    memory.store32(parameters, 0x24, 1);
    memory.store32(parameters, 0x28, 2);
    memory.store64(parameters, 0x30, arguments);
    let [high, low] = split(parameters.physical);
    let mut message = vec![0; BOOT_MESSAGE];
    put(&mut message, 0, &[0xc000_0000, 0x1410_de7e, version | 0x35c << 16]);
    put(&mut message, BOOT_PARAMETERS, &[low, high]);
    send(card, &message);
    card.set(PORT, 1 << 25);
    let answer: Vec<u32> = (0..5).map(|_| card.reg(DATA)).collect();
    card.set(ANSWER_TAIL, 0);
    card.set(ANSWER_HEAD, 0);
    answer.get(4).copied().context("FSP's answer")
}

/// Messages of no known form and of wrong lengths: how many.
pub fn abuse(card: &Card, random: &mut Random) -> u64 {
    let lengths = [4, 8, 864, 872, 1024, 4096];
    for length in lengths {
        let message: Vec<u8> = (0..length).map(|_| random.word().to_le_bytes()[0]).collect();
        send(card, &message);
    }
    lengths.len() as u64
}

/// Puts a message into FSP's memory and sends it.
fn send(card: &Card, message: &[u8]) {
    card.set(PORT, 1 << 24);
    let (words, _) = message.as_chunks::<4>();
    words.iter().for_each(|word| card.set(DATA, u32::from_le_bytes(*word)));
    card.set(QUEUE_TAIL, u32::try_from(message.len().saturating_sub(4)).unwrap_or(0));
    card.set(QUEUE_HEAD, 0);
}
