import { keyOf, type SecretForm } from './keys.ts'
import type { FoundScheme, HeaderScheme, SignatureKind } from './signature.ts'

type SignedScheme = HeaderScheme | FoundScheme

/** A secret taken as other bytes; public keys stay out of it, as whoever knows one could have signed with it. */
export interface OtherSecrets {
  scheme: SignedScheme
  /** In the place of each configured one. */
  secrets: string[]
  words: string
}

const TEXTS: readonly [string, (secret: string) => string][] = [
  ['', (secret) => secret],
  [
    'without the blanks or quotes around it',
    (secret) =>
      secret
        .trim()
        .replace(/^(["'`])(.*)\1$/s, '$2')
        .trim(),
  ],
  ['without its prefix', (secret) => secret.replace(/^(?:[A-Za-z]+_|Basic +|Bearer +)/, '')],
  ['with the prefix whsec_', (secret) => `whsec_${secret}`],
]
const FORMS: readonly [string, SecretForm | undefined][] = [
  ['', undefined],
  ['read as plain text', { form: 'text' }],
  ['decoded from base64', { form: 'base64', prefix: '' }],
  ['decoded from hex', { form: 'hex' }],
]

/** The ways in which secrets are taken wrongly: another encoding, a prefix too many or too few, what came along in copying. */
export function* secretForms(scheme: SignedScheme, secrets: readonly string[]): Generator<OtherSecrets> {
  const shared = secrets.map((secret) => (scheme.signatures.some((kind) => isPublicKey(kind, secret)) ? '' : secret))
  for (const [change, text] of TEXTS) {
    const changed = shared.map((secret) => (secret === '' ? '' : text(secret)))
    for (const [reading, form] of FORMS) {
      if (!form && changed.every((secret, index) => secret === shared[index])) continue
      const words = [change, reading].filter(Boolean).join(', ')
      yield { scheme: form ? withForm(scheme, form) : scheme, secrets: changed, words }
    }
  }
}

function isPublicKey(kind: SignatureKind, secret: string): boolean {
  return kind.kind !== 'hmac' && kind.kind !== 'credential' && kind.secret !== 'remote' && keyOf(kind, secret) !== undefined
}

function withForm(scheme: SignedScheme, form: SecretForm): SignedScheme {
  const changed = <Kind extends SignatureKind>(kind: Kind): Kind =>
    kind.kind === 'hmac' || kind.kind === 'credential' ? { ...kind, secret: { ...keyIdOf(kind.secret), ...form } } : kind
  if (!('proofs' in scheme)) return { ...scheme, signatures: scheme.signatures.map(changed) }
  return {
    ...scheme,
    proofs(request, secrets) {
      const proofs = scheme.proofs(request, secrets)
      if (typeof proofs === 'string') return proofs
      return proofs.map((proof) => ({
        ...proof,
        signatures: proof.signatures.map((signature) => ({ ...signature, kind: changed(signature.kind) })),
      }))
    },
  }
}

function keyIdOf(form: SecretForm): { keyId?: 'required' | 'optional' } {
  return 'keyId' in form && form.keyId ? { keyId: form.keyId } : {}
}
