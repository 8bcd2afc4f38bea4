import { readFileSync } from 'node:fs'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { onTestFinished } from 'vitest'

/** A time at which the certificates of the tests are valid, but for the expired one: 15 January 2027. */
export const CERTIFICATES_VALID_AT = 1_800_000_000

/** A certificate or key of `test/fixtures/certificates`. */
export function pem(name: string): string {
  return readFileSync(new URL(`../fixtures/certificates/${name}.pem`, import.meta.url), 'utf8')
}

/** Has this process trust these certificates and no others, until the test ends. */
export function trustOnly(...certificates: string[]): void {
  const before = getCACertificates('default')
  setDefaultCACertificates(certificates)
  onTestFinished(() => setDefaultCACertificates(before))
}
