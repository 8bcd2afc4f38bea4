import { domainToASCII } from 'node:url'

/** An address as it must agree for an event to settle a send: letter case, Unicode form and the domain's spelling don't count. */
export function acceptForm(address: string): string {
  const { local, domain } = parts(address)
  return `${local}@${domain}`
}

/** The widest form of an address that could be the same mailbox: without a plus-tag, and without dots at Gmail. */
export function excludeForm(address: string): string {
  const { local, domain } = parts(address)
  const untagged = local.replace(/\+.*$/, '')
  return domain === 'gmail.com' || domain === 'googlemail.com'
    ? `${untagged.replaceAll('.', '')}@gmail.com`
    : `${untagged}@${domain}`
}

function parts(address: string): { local: string; domain: string } {
  const normal = address.trim().normalize('NFC').toLowerCase()
  const at = normal.lastIndexOf('@')
  const domain = normal.slice(at + 1)
  // A domain that can't be written in ASCII stays as it is.
  return { local: normal.slice(0, Math.max(at, 0)), domain: domainToASCII(domain) || domain }
}
