import { X509Certificate } from 'node:crypto'
import { getCACertificates } from 'node:tls'
import type { KnownKey } from './provider.ts'

/** Leaf, intermediates and root; a longer chain only costs time. */
const MAX_CERTIFICATES = 6
const LONGEST_URL = 500

/** The key of the first certificate of a PEM text, while its dates hold; undefined when there is none. */
export function datedKey(pem: string, nowSeconds: number): KnownKey | undefined {
  const [leaf] = certificatesOf(pem)
  return leaf && isDated(leaf, nowSeconds) ? { key: leaf.publicKey, validUntil: endOf(leaf) } : undefined
}

/**
 * The key of the first certificate of a PEM text, if its name is right and a chain of valid dates leads from it through the others
 * to a certificate that this machine trusts; undefined when not.
 */
export function chainedKey(pem: string, nowSeconds: number, isRightName: (commonName: string) => boolean): KnownKey | undefined {
  const [leaf, ...others] = certificatesOf(pem)
  if (!leaf || !isRightName(commonNameOf(leaf))) return undefined
  const trusted = getCACertificates('default').flatMap(certificatesOf)
  let validUntil = Number.POSITIVE_INFINITY
  let certificate = leaf
  for (let links = 0; links < MAX_CERTIFICATES; links++) {
    if (!isDated(certificate, nowSeconds)) return undefined
    validUntil = Math.min(validUntil, endOf(certificate))
    const issued = certificate
    if (trusted.some((each) => isIssuedBy(issued, each) && isDated(each, nowSeconds))) return { key: leaf.publicKey, validUntil }
    const issuer = others.find((each) => isIssuedBy(issued, each))
    if (!issuer) return undefined
    certificate = issuer
  }
  return undefined
}

/** Keys of certificates that the operator has pinned, by URL; each until its certificate ends. */
export function pinnedKeys(certificates: Readonly<Record<string, string>>): Map<string, KnownKey> {
  return new Map(
    Object.entries(certificates).flatMap(([url, pem]): [string, KnownKey][] => {
      const [leaf] = certificatesOf(pem)
      return leaf ? [[url, { key: leaf.publicKey, validUntil: endOf(leaf) }]] : []
    }),
  )
}

/** Tells whether a text holds a certificate. */
export function isCertificate(pem: string): boolean {
  return certificatesOf(pem).length > 0
}

/** The parts of an https URL that names a host and a path and nothing else, in its one spelling; undefined when it is anything else. */
export function plainHttpsUrl(text: string): URL | undefined {
  if (text.length > LONGEST_URL) return undefined
  const url = URL.parse(text)
  // Written otherwise, one key would have many names, and who else reads the URL could read it in another way.
  return url && text === `https://${url.hostname}${url.pathname}` ? url : undefined
}

function certificatesOf(pem: string): X509Certificate[] {
  try {
    return (pem.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g) ?? [])
      .slice(0, MAX_CERTIFICATES)
      .map((text) => new X509Certificate(text))
  } catch {
    return []
  }
}

function isDated({ validFromDate, validToDate }: X509Certificate, nowSeconds: number): boolean {
  return validFromDate.getTime() <= nowSeconds * 1000 && nowSeconds * 1000 <= validToDate.getTime()
}

function endOf({ validToDate }: X509Certificate): number {
  return Math.floor(validToDate.getTime() / 1000)
}

/** Names first, so that only a certificate that claims to be the issuer costs a signature check. */
function isIssuedBy(certificate: X509Certificate, issuer: X509Certificate): boolean {
  if (certificate.issuer !== issuer.subject || !issuer.ca) return false
  try {
    return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey)
  } catch {
    return false
  }
}

function commonNameOf({ subject }: X509Certificate): string {
  // Node puts each part of the name on a line of its own, with what could break one escaped.
  const names = subject.split('\n').filter((part) => part.startsWith('CN='))
  return names.length === 1 ? (names[0] ?? '').slice(3) : ''
}
