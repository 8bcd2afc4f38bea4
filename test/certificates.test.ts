import { X509Certificate } from 'node:crypto'
import { expect, test } from 'vitest'
import { chainedKey, datedKey, isCertificate, pinnedKeys, plainHttpsUrl } from '../src/providers/certificates.ts'
import { CERTIFICATES_VALID_AT, pem, trustOnly } from './support/certificates.ts'

const DAY = 86_400
const anyName = () => true
const chained = (...names: string[]) => chainedKey(names.map(pem).join('\n'), CERTIFICATES_VALID_AT, anyName)

test('a chain that leads to a trusted certificate gives the key of the first one, until the first of them ends', () => {
  trustOnly(pem('root'))

  const found = chained('leaf', 'intermediate')

  expect(found?.key.export({ format: 'pem', type: 'spki' })).toBe(
    new X509Certificate(pem('leaf')).publicKey.export({ format: 'pem', type: 'spki' }),
  )
  // 5 November 2126, 18:00:53 UTC: the end of the intermediate, 16 minutes before the leaf's.
  expect(found?.validUntil).toBe(4_949_575_253)
})

test('the certificates after the first may come in any order, with the root among them, and with some too many', () => {
  trustOnly(pem('root'))

  expect(chained('leaf', 'root', 'other-root', 'intermediate')).toBeDefined()
})

test('an intermediate that this machine trusts itself may be missing', () => {
  trustOnly(pem('intermediate'))

  expect(chained('leaf')).toBeDefined()
})

test.each([
  ['the intermediate is missing', ['leaf'], ['root']],
  ['nothing trusted issued it', ['leaf', 'intermediate'], []],
  ['the root in the file is not trusted', ['leaf', 'intermediate', 'root'], []],
  ['the trusted root has only the name of the right one', ['leaf', 'intermediate', 'root'], ['other-root']],
  ['it has ended', ['expired', 'intermediate'], ['root']],
  ['its issuer is no authority', ['by-leaf', 'leaf', 'intermediate'], ['root']],
  ['its issuer is no authority, though trusted', ['by-leaf'], ['leaf']],
  ['there is none', [], ['root']],
])('no key is taken when %s', (_why, file, trusted) => {
  trustOnly(...trusted.map(pem))

  expect(chained(...file)).toBeUndefined()
})

test('no key is taken before or after the dates of the chain, nor for another name', () => {
  trustOnly(pem('root'))
  const file = `${pem('leaf')}${pem('intermediate')}`

  expect(chainedKey(file, 1_790_000_000, anyName)).toBeUndefined()
  expect(chainedKey(file, 4_949_575_254, anyName)).toBeUndefined()
  expect(chainedKey(file, CERTIFICATES_VALID_AT, (name) => name === 'messageverificationcerts.paypal.com')).toBeUndefined()
  expect(chainedKey(file, CERTIFICATES_VALID_AT, (name) => name === 'messageverificationcerts.sandbox.paypal.com')).toBeDefined()
})

test('a key by dates alone ends with its certificate', () => {
  expect(datedKey(pem('leaf'), CERTIFICATES_VALID_AT)?.validUntil).toBe(4_949_576_213)
  expect(datedKey(pem('expired'), CERTIFICATES_VALID_AT)).toBeUndefined()
  expect(datedKey(pem('leaf'), CERTIFICATES_VALID_AT - 100 * DAY)).toBeUndefined()
})

test.each([
  '',
  'no certificate',
  '-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----',
  '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----',
  pem('leaf-key'),
])('a text that holds no certificate gives no key: %j', (text) => {
  trustOnly(pem('root'))

  expect(isCertificate(text)).toBe(false)
  expect(datedKey(text, CERTIFICATES_VALID_AT)).toBeUndefined()
  expect(chainedKey(text, CERTIFICATES_VALID_AT, anyName)).toBeUndefined()
  expect(pinnedKeys({ 'https://example.com/': text }).size).toBe(0)
})

test.each([
  ['https://api.paypal.com/v1/certs/A', 'api.paypal.com'],
  ['https://API.PayPal.com/v1', undefined],
  ['https://api.paypal.com:443/v1', undefined],
  ['https://api.paypal.com', undefined],
  ['https://api.paypal.com/v1?a', undefined],
  ['https://api.paypal.com/v1?', undefined],
  ['https://api.paypal.com/v1#a', undefined],
  ['https://api.paypal.com/v1#', undefined],
  ['https://api.paypal.com/v1/../v2', undefined],
  ['https://api.paypal.com/v1/%2e%2e/v2', undefined],
  ['https:/api.paypal.com/v1', undefined],
  ['http://api.paypal.com/', undefined],
  ['https://api.paypal.com:8443/', undefined],
  ['https://api.paypal.com@attacker.example/', undefined],
  ['https://user:password@api.paypal.com/', undefined],
  ['https://attacker.example\\@api.paypal.com/', undefined],
  ['https://api.paypal.com\\.attacker.example/', undefined],
  ['https://api.paypal.com /', undefined],
  [' https://api.paypal.com/', undefined],
  ['https://api.paypal.com\t.attacker.example/', undefined],
  ['https://api。paypal。com/', undefined],
  ['file:///etc/passwd', undefined],
  ['//api.paypal.com/', undefined],
  ['', undefined],
  [`https://api.paypal.com/${'a'.repeat(500)}`, undefined],
])('%j is read as a plain https address of %s', (text, host) => {
  expect(plainHttpsUrl(text)?.hostname).toBe(host)
})
