import '../app.css';

import Panel from './Panel.svelte';
import { open } from '../lib/open';

open(Panel);
