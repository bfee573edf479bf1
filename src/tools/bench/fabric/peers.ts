/** To how many other engines a scatter goes. */
export const scatterPeers = 63;
/** Processes of the all-to-all. */
export const allToAllRanks = 16;
export const mebibyte = 1 << 20;
