import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { codeOf, optionsOf } from '../../scripts/provider-docs.ts'
import type { SecretForm } from '../../src/providers/keys.ts'
import type { HeaderValues, Provider, ProviderDefinition, SampleRequest } from '../../src/providers/provider.ts'
import { createProvider, providers } from '../../src/providers/registry.ts'
import type { SignatureKind } from '../../src/providers/signature.ts'

/** A provider as a source could have it, with a secret, one that differs in a single character, and the keys to sign with. */
export interface ProviderSetup {
  title: string
  definition: ProviderDefinition
  /** Its options as the guide shows them, and what they are. */
  code: string | undefined
  options: Record<string, unknown>
  provider: Provider
  kinds: readonly SignatureKind[]
  secret: string
  neighbour: string
  privateKeys: PrivateKeys
  /** Knows the public keys of `privateKeys`, under whatever name a request asks for them. */
  keyring(): KeyObject
}

type PrivateKeys = { rsa: string; ec: string; ed25519: string }

const [keys, otherKeys] = [newKeys(), newKeys()]

const variantsOf = ({ guide }: ProviderDefinition) =>
  (guide.variants ?? []).map(({ title, options }) => ({ title, options: codeOf(options) }))

/** Every provider under every scheme that it has, by the options that its guide shows. */
export const setups: readonly ProviderSetup[] = [...providers.values()].flatMap((definition) =>
  [{ title: '', options: definition.guide.options }, ...variantsOf(definition)].map(({ title, options: code }) => {
    const options = optionsOf(code)
    const provider = createProvider(definition.name, options)
    const kinds = 'isUnsigned' in provider.scheme ? [] : provider.scheme.signatures
    const [kind] = kinds
    return {
      title: [definition.name, title].filter((it) => it !== '').join(', '),
      definition,
      code,
      options,
      provider,
      kinds,
      secret: kind ? secretOf(kind, 'q', keys) : '',
      neighbour: kind ? secretOf(kind, 'r', otherKeys) : '',
      privateKeys: keys,
      keyring: () => createPublicKey(createPrivateKey(kind ? privateKeyOf(kind, keys) : keys.rsa)),
    }
  }),
)

/** A request as it is verified, from what a sample posts. */
export function requestOf({ headers, body, query }: SampleRequest) {
  const values: HeaderValues = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), [value]]))
  return { headers: values, body: Buffer.from(body as string), ...(query !== undefined && { query }) }
}

function newKeys(): PrivateKeys {
  const pem = { format: 'pem', type: 'pkcs8' } as const
  return {
    rsa: generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export(pem) as string,
    ec: generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export(pem) as string,
    ed25519: generateKeyPairSync('ed25519').privateKey.export(pem) as string,
  }
}

function privateKeyOf({ kind }: SignatureKind, { rsa, ec, ed25519 }: PrivateKeys): string {
  return kind === 'ecdsa' ? ec : kind === 'ed25519' ? ed25519 : rsa
}

/** A secret in the form that a kind of signature wants, with one given character in it. */
function secretOf(kind: SignatureKind, character: string, ownKeys: PrivateKeys): string {
  if (kind.secret === 'remote') return `client:a-secret-with-${character}-in-it`
  const form: SecretForm = kind.secret
  if (form.form === 'public key')
    return createPublicKey(createPrivateKey(privateKeyOf(kind, ownKeys))).export({ format: 'pem', type: 'spki' }) as string
  if (form.form === 'base64')
    return `${form.prefix}${Buffer.from(`32 bytes, one of which is: ${character} ...`).toString('base64')}`
  if (form.form === 'hex')
    return `44782def547aaa06c910c43932b1eb0c71fc68d9d0c057550c48ec2acf6ba0${character === 'q' ? '56' : '57'}`
  // A name before the colon for those that want one: of a key, or of a user.
  return `${form.keyId || kind.kind === 'credential' ? 'some_name:' : ''}a-secret-with-${character}-in-it`
}
