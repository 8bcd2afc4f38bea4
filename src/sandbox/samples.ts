import { createPrivateKey, type KeyObject, randomUUID, sign as signAsymmetric } from 'node:crypto'
import type { ProviderDefinition, SampleRequest } from '../providers/provider.ts'
import { createProvider, providers } from '../providers/registry.ts'
import { type SignatureKind, sign } from '../providers/signature.ts'

/** One sample to make: of which provider, under which secret, saying what. */
export interface SampleOptions {
  provider: string
  options?: unknown
  secret: string
  type: string
  id?: string
  /** Another event of the same object. */
  about?: string
  nowSeconds: number
  /** When it happened, if not now: the same event again has the same bytes. */
  happenedSeconds?: number
  email?: string
  livemode?: boolean
  /** What a provider that signs by a private key would sign with: PEM. */
  privateKeys?: { rsa: string; ec: string; ed25519: string }
}

/** A made-up event of the given type, signed as its provider would sign it; throws for a secret that can't sign. */
export function sampleRequest(request: SampleOptions): SampleRequest & { body: Buffer } {
  const { provider: name, secret, type, nowSeconds, email = 'ada@example.com', livemode = true } = request
  const { scheme } = createProvider(name, request.options)
  const { sample } = providers.get(name) ?? fail(`there is no provider "${name}"`)
  const id = request.id ?? newId(sample)
  const options = (request.options ?? {}) as Record<string, unknown> // checked by createProvider
  const sign = signerOf('isUnsigned' in scheme ? [] : scheme.signatures, secret, request.privateKeys)
  const signed = sample.request(
    {
      type,
      id,
      about: request.about ?? id,
      nowSeconds,
      happenedSeconds: request.happenedSeconds ?? nowSeconds,
      email,
      livemode,
      secret,
      options,
    },
    (text) => sign(text) ?? fail(`this secret can't sign samples of provider "${name}"`),
  )
  return {
    ...signed,
    headers: { 'content-type': 'application/json', ...signed.headers },
    body: Buffer.from(signed.body as string),
  }
}

/** What signs as a sender with this secret, or with these private keys, would; it gives nothing where neither can sign. */
export function signerOf(
  kinds: readonly SignatureKind[],
  secret: string,
  privateKeys: SampleOptions['privateKeys'],
): (text: string | Buffer) => string | undefined {
  return (text) =>
    kinds.map((kind) => sign(kind, secret, [text]) ?? signByKey(kind, privateKeys, text)).find((it) => it !== undefined)
}

function signByKey(kind: SignatureKind, keys: SampleOptions['privateKeys'], text: string | Buffer): string | undefined {
  if (!keys || kind.kind === 'hmac' || kind.kind === 'credential') return undefined
  const key: KeyObject = createPrivateKey({ rsa: keys.rsa, ecdsa: keys.ec, ed25519: keys.ed25519 }[kind.kind])
  const algorithm = kind.kind === 'ed25519' ? null : kind.kind === 'rsa' ? kind.algorithm : 'sha256'
  const dsaEncoding = kind.encoding === 'base64url' ? 'ieee-p1363' : 'der'
  return signAsymmetric(algorithm, Buffer.from(text as string), { key, dsaEncoding }).toString(kind.encoding)
}

function newId(sample: ProviderDefinition['sample']): string {
  const uuid = randomUUID()
  return sample.newId(uuid.replaceAll('-', '').slice(0, 24), uuid)
}

function fail(message: string): never {
  throw new Error(message)
}
