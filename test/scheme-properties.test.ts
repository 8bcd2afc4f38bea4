import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { SampleRequest, WebhookRequest } from '../src/providers/provider.ts'
import { readEvents } from '../src/providers/read-events.ts'
import { type SignatureKind, verify } from '../src/providers/signature.ts'
import { signerOf } from '../src/sandbox/samples.ts'
import { type ProviderSetup, requestOf, setups } from './support/provider-setups.ts'

// What must hold whatever the scheme is: each provider's own sample, changed in one thing at a time.

const NOW = 1_790_000_000
const RUNS = { numRuns: 20 }
/** Their secrets pay for looking up a key; they are no part of what is signed. */
const SECRETS_SIGN_NOTHING = ['aws-sns', 'plaid']

/** What is done to a sample on its way to being signed. */
interface Changes {
  kinds?: readonly SignatureKind[]
  text?(signed: Buffer): Buffer
  signature?(signature: string): string
}

function sampleOf({ definition, kinds, options, secret, privateKeys }: ProviderSetup, changes: Changes = {}): SampleRequest {
  const sign = signerOf(changes.kinds ?? kinds, secret, privateKeys)
  const type = definition.sample.types.paid ?? 'delivered'
  const id = definition.sample.newId('0123456789abcdef01234567', '0f8fad5b-d9cb-469f-a165-70867728950e')
  const event = { type, id, about: id, nowSeconds: NOW, happenedSeconds: NOW, email: 'ada@example.com', livemode: true, secret, options }
  return definition.sample.request(event, (signed) => {
    const signature = sign(changes.text?.(Buffer.from(signed as string)) ?? signed)
    if (signature === undefined) throw new Error('this secret can not sign')
    return changes.signature?.(signature) ?? signature
  })
}

function verdictOf({ provider, keyring }: ProviderSetup, request: WebhookRequest, secrets: readonly string[]) {
  return verify(provider.scheme, request, secrets, NOW, provider.toleranceSeconds, keyring)
}

const isAccepted = (setup: ProviderSetup, request: WebhookRequest) => verdictOf(setup, request, [setup.secret]).ok

/** The same bytes but for one bit, at a place that is given as a fraction of their length. */
function flipped(bytes: Buffer, [at, bit]: readonly [number, number]): Buffer {
  const copy = Buffer.from(bytes)
  const index = Math.floor(at * copy.length)
  copy[index] = (copy[index] ?? 0) ^ (1 << bit)
  return copy
}

const place = fc.tuple(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), fc.nat({ max: 7 }))

/** The headers without which nothing is proven: those of the scheme's description, or the one that the signature was found in. */
function headersRead(setup: ProviderSetup): string[] {
  const { scheme } = setup.provider
  const { headers } = requestOf(sampleOf(setup))
  if ('isUnsigned' in scheme) return []
  if ('proofs' in scheme) {
    let signature = ''
    const marked = sampleOf(setup, { signature: (text) => (signature = text) })
    const carries = ([, value]: [string, string]) => value.includes(signature)
    return Object.entries(marked.headers)
      .filter(carries)
      .map(([name]) => name.toLowerCase())
  }
  const places = [...scheme.signatures, scheme.timestamp, scheme.id].flatMap((it) => it?.header ?? [])
  return [...new Set(places)].filter((name) => headers[name] !== undefined)
}

const signing = setups.filter(({ kinds }) => kinds.length > 0)

test('every provider but an unsigned one is among them', () => {
  expect(signing.length).toBeGreaterThan(0)
  expect(setups.filter((setup) => !signing.includes(setup)).every(({ provider }) => provider.requiresConfirm)).toBe(true)
})

test('where nothing of an event is signed, one that is made up never stands in for the real one', () => {
  const unsigned = setups.filter(({ provider }) => !provider.contentIsSigned)

  expect(unsigned.map(({ title }) => title)).toEqual([
    'chargebee',
    'flutterwave, v3',
    'mailgun',
    'mercadopago',
    'mollie, classic',
    'postmark',
    'postmark, a custom header',
    'xendit',
  ])
  expect(unsigned.every(({ provider }) => provider.otherBodyIsFurtherEvent)).toBe(true)
})

describe.each(signing)('$title', (setup) => {
  const { provider, kinds, secret, neighbour } = setup
  const { scheme } = provider
  const request = requestOf(sampleOf(setup))
  const [kind] = kinds as [SignatureKind]
  const isComputed = kind.kind !== 'credential'
  const isHex = kind.kind === 'hmac' && kind.encoding === 'hex'
  const readsAnyCase = kind.kind === 'hmac' && kind.anyCase === true

  const isSame = (a: string, b: string) =>
    readsAnyCase
      ? a.toLowerCase() === b.toLowerCase()
      : // A password is the same however its base64 is written.
        kind.encoding === 'basic' && Buffer.from(a, 'base64').equals(Buffer.from(b, 'base64'))

  test('the sample as it is is accepted', () => {
    expect(verdictOf(setup, request, [secret])).toMatchObject({ ok: true })
  })

  test('a flipped bit of the signature is refused', () => {
    fc.assert(
      fc.property(place, (where) => {
        const signature = (text: string) => {
          const changed = flipped(Buffer.from(text), where).toString('latin1')
          fc.pre(!isSame(text, changed))
          return changed
        }
        expect(isAccepted(setup, requestOf(sampleOf(setup, { signature })))).toBe(false)
      }),
      RUNS,
    )
  })

  test('a signature that is cut short, or has something before or behind it, is refused', () => {
    fc.assert(
      fc.property(fc.nat({ max: 200 }), fc.constantFrom('0', 'a', 'A', '='), (length, more) => {
        for (const change of [
          (text: string) => text.slice(0, length % text.length),
          (text: string) => `${more}${text}`,
          (text: string) => `${text}${more}`,
        ]) {
          const signature = (text: string) => (isSame(text, change(text)) ? 'other' : change(text))
          expect(isAccepted(setup, requestOf(sampleOf(setup, { signature })))).toBe(false)
        }
      }),
      RUNS,
    )
  })

  test.runIf(isComputed)('the signature of a text that differs in a bit is refused', () => {
    fc.assert(
      fc.property(place, (where) => {
        const changed = sampleOf(setup, { text: (signed) => flipped(signed, where) })
        expect(isAccepted(setup, requestOf(changed))).toBe(false)
      }),
      RUNS,
    )
  })

  test.runIf(provider.contentIsSigned)('a body with a flipped bit is refused, or says the same', () => {
    const said = (of: WebhookRequest) => readEvents(provider, of).events.map(({ id, type }) => [id, type])

    fc.assert(
      fc.property(place, (where) => {
        const changed = { ...request, body: flipped(request.body, where) }
        // Only where some fields of the body are signed can it be that another one has changed.
        if ('proofs' in scheme && isAccepted(setup, changed)) expect(said(changed)).toEqual(said(request))
        else expect(isAccepted(setup, changed)).toBe(false)
      }),
      RUNS,
    )
  })

  test('without one of the headers that it reads it is refused', () => {
    for (const name of headersRead(setup)) {
      const { [name]: _dropped, ...headers } = request.headers
      expect(isAccepted(setup, { ...request, headers }), name).toBe(false)
    }
  })

  test('with one of the headers that it reads twice it is refused, whichever of the two is right', () => {
    for (const name of headersRead(setup)) {
      const [value = ''] = request.headers[name] ?? []
      for (const values of [
        [value, value],
        [value, 'other'],
        ['other', value],
      ]) {
        const isAllowed = 'isRepeatable' in scheme && scheme.isRepeatable === true
        expect(isAccepted(setup, { ...request, headers: { ...request.headers, [name]: values } }), name).toBe(isAllowed)
      }
    }
  })

  test.runIf(isComputed)('a signature in another encoding is refused', () => {
    const others = (['hex', 'base64', 'base64url'] as const).filter((encoding) => encoding !== kind.encoding)
    for (const encoding of others) {
      const signature = (text: string) => {
        const changed = Buffer.from(text, kind.encoding as BufferEncoding).toString(encoding)
        // Two of these are one where there is no plus, slash or padding in it.
        return changed === text ? 'other' : changed
      }
      expect(isAccepted(setup, requestOf(sampleOf(setup, { signature }))), encoding).toBe(false)
    }
  })

  test.runIf(isHex)('upper-case hex is taken only where the provider itself takes it', () => {
    const changed = sampleOf(setup, { signature: (text) => text.toUpperCase() })

    expect(isAccepted(setup, requestOf(changed))).toBe(readsAnyCase)
  })

  test.runIf('algorithm' in kind)('a signature by another algorithm is refused', () => {
    const algorithms = (kind.kind === 'rsa' ? ['sha1', 'sha256'] : ['sha1', 'sha256', 'sha512']) as ('sha1' | 'sha256')[]
    for (const algorithm of algorithms.filter((it) => 'algorithm' in kind && it !== kind.algorithm)) {
      const changed = sampleOf(setup, { kinds: [{ ...kind, algorithm } as SignatureKind] })
      expect(isAccepted(setup, requestOf(changed)), algorithm).toBe(false)
    }
  })

  test.skipIf(SECRETS_SIGN_NOTHING.includes(provider.name))(
    'any of the configured secrets does, and the verdict names it',
    () => {
      fc.assert(
        fc.property(fc.nat({ max: 4 }), fc.nat({ max: 4 }), (before, after) => {
          const others = (count: number) => Array<string>(count).fill(neighbour)
          const verdict = verdictOf(setup, request, [...others(before), secret, ...others(after)])
          expect(verdict).toMatchObject({ ok: true, secretIndex: before })
        }),
        RUNS,
      )
    },
  )

  test.skipIf(SECRETS_SIGN_NOTHING.includes(provider.name))('a secret that differs in one character does not', () => {
    expect(isAccepted({ ...setup, secret: neighbour }, request)).toBe(false)
    expect(verdictOf(setup, request, [])).toMatchObject({ ok: false })
  })
})
