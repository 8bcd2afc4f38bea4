import { readdirSync } from 'node:fs'
import { z } from 'zod'
import type { Provider, ProviderDefinition } from './provider.ts'

const folder = new URL('./catalog/', import.meta.url)

/** Every provider that a source can name, by name: whatever the files of `catalog/` export. */
export const providers: ReadonlyMap<string, ProviderDefinition> = new Map(
  (await Promise.all(readdirSync(folder).map((file) => import(new URL(file, folder).href) as Promise<object>)))
    .flatMap((module) => Object.values(module))
    .filter(isDefinition)
    .map((each): [string, ProviderDefinition] => [each.name, each])
    .sort(([a], [b]) => (a < b ? -1 : 1)),
)

/** A provider with one source's options; throws at an unknown name, and at options that are wrong or unknown. */
export function createProvider(name: string, options: unknown = {}): Provider {
  const definition = providers.get(name)
  if (!definition) throw new Error(`unknown provider "${name}"; known are ${[...providers.keys()].join(', ')}`)
  const parsed = definition.options.safeParse(options)
  if (!parsed.success) throw new Error(`options of provider "${name}":\n${z.prettifyError(parsed.error)}`)
  return { maxBodyBytes: 1024 * 1024, toleranceSeconds: Number.POSITIVE_INFINITY, ...definition.create(parsed.data) }
}

/** What a file exports beside its providers, such as the reading of a report, is none. */
function isDefinition(value: unknown): value is ProviderDefinition {
  return typeof value === 'object' && value !== null && 'create' in value && 'guide' in value
}
