import type { Config } from '../../src/config.ts'
import type { Provider } from '../../src/providers/provider.ts'

/** The configuration with one source's provider changed: for what a provider may be, whether or not there is one like it. */
export function withProvider(config: Config, source: string, changes: Partial<Provider>): Config {
  const found = config.sources.get(source)
  if (!found) throw new Error(`there is no source ${source}`)
  return { ...config, sources: new Map(config.sources).set(source, { ...found, provider: { ...found.provider, ...changes } }) }
}
